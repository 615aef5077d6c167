//! The heap of the program: the one place where it needs an unsafe call.

/// Freed memory at the end of the heap that is kept: some chunks of text and what is decoded of them. Without, it
/// goes back to the system with each batch, and has to be cleared for the next one.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT_BYTES: libc::c_int = 8 << 20;

/// What is longer is mapped by itself, which costs a page fault for each 4 KiB every time; glibc allows no more.
///
/// Left alone, it becomes the length of what was freed so far, and so how fast a batch is depends on which came before.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_BYTES: libc::c_int = 32 << 20;

/// Makes all threads share one heap, which keeps a little of what is freed.
///
/// glibc gives each thread a heap of its own, and what is freed stays with that heap: with a dozen threads that
/// pass batches on to each other, tens of megabytes beyond `--memory`. Batches are few and large, so threads
/// seldom meet at the one heap. To be called before any thread is started.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(super) fn set_up_heap() {
    let settings =
        [(libc::M_ARENA_MAX, 1), (libc::M_TRIM_THRESHOLD, KEPT_BYTES), (libc::M_MMAP_THRESHOLD, MAPPED_BYTES)];
    for (name, value) in settings {
        #[expect(unsafe_code, reason = "glibc has no other way to say it from inside a program")]
        // SAFETY: mallopt sets a number in the allocator, under its own lock; it takes no pointer and frees nothing.
        // A refusal (0) leaves the allocator as it was, which costs memory or time and nothing else.
        let _ = unsafe { libc::mallopt(name, value) };
    }
}

/// Other C libraries have one heap.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(super) fn set_up_heap() {}
