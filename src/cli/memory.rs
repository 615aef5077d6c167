//! The heap of the program: the one place where it needs an unsafe call.

/// Makes all threads share one heap.
///
/// glibc gives each thread a heap of its own, and what is freed stays with that heap: with a dozen threads that
/// pass batches on to each other, tens of megabytes beyond `--memory`. Batches are few and large, so threads
/// seldom meet at the one heap. To be called before any thread is started.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(super) fn share_one_heap() {
    #[expect(unsafe_code, reason = "glibc has no other way to say it from inside a program")]
    // SAFETY: mallopt sets a number in the allocator, under its own lock; it takes no pointer and frees nothing.
    // A refusal (0) leaves the allocator as it was, which costs memory and nothing else.
    let _ = unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Other C libraries have one heap.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(super) fn share_one_heap() {}
