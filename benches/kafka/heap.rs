//! The heap, as the `segue` program has it.
#![expect(unsafe_code, reason = "glibc has no other way to say it from inside a program")]

/// Keeps what is freed of large buffers: every fetch wants one, and pages from the system have to be cleared.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(super) fn set_up() {
    for (name, value) in [(libc::M_TRIM_THRESHOLD, 8 << 20), (libc::M_MMAP_THRESHOLD, 32 << 20)] {
        // SAFETY: it sets a number in the allocator, under its own lock.
        unsafe { libc::mallopt(name, value) };
    }
}

/// Other C libraries have no such settings.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(super) fn set_up() {}
