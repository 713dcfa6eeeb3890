//! Futures that run on a separate stack, so that a poll can be suspended in the middle.
//!
//! `rustls` calls its signer in the middle of a handshake and expects the signature as the return
//! value. A [`Fiber`] polls the handshake on a separate stack. When the signer calls [`wait`], the
//! thread switches back to the task that polls the fiber. The fiber continues when this task is
//! woken.
//!
//! ```text
//! task:   poll ---+            +--> Pending      poll ---+             +--> Ready
//!                 | switch     | switch                  | switch      |
//! fiber:          +--> rustls -+ wait(job)               +-- signature, rustls continues
//! ```
#![allow(unsafe_code, reason = "the fiber accesses its future and its yielder through pointers")]

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll, Waker};

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

/// Size of a fiber's stack in bytes, without the guard page. In a build without optimisation, a
/// handshake with X25519MLKEM768 uses about 40 KiB.
const STACK_BYTES: usize = 256 << 10;
/// Largest number of unused stacks that a thread keeps.
const STACKS_MAX: usize = 256;

type Resume = Waker;
type Suspend = Yielder<Resume, ()>;

thread_local! {
    /// Handle to the running fiber, and the waker of its task.
    static CURRENT: RefCell<Option<(NonNull<Suspend>, Waker)>> = const { RefCell::new(None) };
    /// Unused stacks.
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
    /// Number of suspended fibers of this thread.
    static SUSPENDED: Cell<usize> = const { Cell::new(0) };
}

/// Future that polls another future on a separate stack.
///
/// It is not `Send`, because the stack may hold values that belong to its thread.
pub(crate) struct Fiber<F: Future> {
    /// Suspended call to `poll`. It borrows `future`, so it must be dropped first.
    suspended: Option<Coroutine<Resume, (), Poll<F::Output>, DefaultStack>>,
    future: Pin<Box<F>>,
}

impl<F: Future + 'static> Fiber<F> {
    pub(crate) fn new(future: F) -> Self {
        Self { suspended: None, future: Box::pin(future) }
    }

    /// Prepares a coroutine that polls the future once.
    fn start(&mut self) -> std::io::Result<Coroutine<Resume, (), Poll<F::Output>, DefaultStack>> {
        let pooled = STACKS.with_borrow_mut(Vec::pop);
        let stack = pooled.map_or_else(|| DefaultStack::new(STACK_BYTES), Ok)?;
        // SAFETY: the future stays pinned, because the pointer is used as `Pin` only.
        let future = NonNull::from(unsafe { self.future.as_mut().get_unchecked_mut() });
        Ok(Coroutine::with_stack(stack, move |yielder: &Suspend, waker: Waker| {
            CURRENT.set(Some((NonNull::from(yielder), waker.clone())));
            // SAFETY: the box outlives the coroutine, since `suspended` is dropped first. No other
            // code accesses the future while the coroutine exists.
            let future = unsafe { Pin::new_unchecked(&mut *future.as_ptr()) };
            future.poll(&mut Context::from_waker(&waker))
        }))
    }
}

impl<F: Future + 'static> Future for Fiber<F> {
    type Output = std::io::Result<F::Output>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let mut coroutine = match this.suspended.take() {
            Some(suspended) => {
                SUSPENDED.set(SUSPENDED.get() - 1);
                suspended
            }
            None => this.start()?,
        };
        let outer = Outer::enter();
        let resumed = coroutine.resume(context.waker().clone());
        drop(outer);
        match resumed {
            CoroutineResult::Yield(()) => {
                this.suspended = Some(coroutine);
                SUSPENDED.set(SUSPENDED.get() + 1);
                Poll::Pending
            }
            CoroutineResult::Return(poll) => {
                let stack = coroutine.into_stack();
                STACKS.with_borrow_mut(|stacks| {
                    if stacks.len() < STACKS_MAX {
                        stacks.push(stack);
                    }
                });
                poll.map(Ok)
            }
        }
    }
}

impl<F: Future> Unpin for Fiber<F> {}

impl<F: Future> Drop for Fiber<F> {
    fn drop(&mut self) {
        // Dropping a suspended coroutine unwinds its stack, which drops the values on the stack.
        if let Some(coroutine) = self.suspended.take() {
            // The thread-local counter may already be destroyed when a thread ends.
            let _ = SUSPENDED.try_with(|suspended| suspended.set(suspended.get() - 1));
            let _outer = Outer::enter();
            drop(coroutine);
        }
    }
}

/// Saves the outer fiber while an inner fiber runs. When this value is dropped, the outer fiber
/// becomes current again, even after a panic.
struct Outer(Option<(NonNull<Suspend>, Waker)>);

impl Outer {
    fn enter() -> Self {
        Self(CURRENT.try_with(RefCell::take).unwrap_or_default())
    }
}

impl Drop for Outer {
    fn drop(&mut self) {
        // The thread-local variable may already be destroyed when a thread ends.
        let _ = CURRENT.try_with(|current| current.replace(self.0.take()));
    }
}

/// Suspends the current fiber until `poll` returns ready. Returns `None` outside a fiber.
///
/// `poll` must store the waker of its context, as in [`Future::poll`]. Other tasks run meanwhile,
/// so the caller must not hold a borrow of a thread-local variable.
pub(crate) fn wait<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Option<T> {
    let (yielder, mut waker) = CURRENT.with_borrow(|current| current.clone())?;
    loop {
        if let Poll::Ready(value) = poll(&mut Context::from_waker(&waker)) {
            return Some(value);
        }
        // SAFETY: this code runs on the stack of the fiber whose yielder is in CURRENT. The yielder
        // lives as long as the body of the coroutine.
        waker = unsafe { yielder.as_ref() }.suspend(());
        CURRENT.set(Some((yielder, waker.clone())));
    }
}

/// Returns the number of suspended fibers of this thread.
#[cfg(test)]
fn suspended() -> usize {
    SUSPENDED.get()
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Value that one task sets, and the waker of the waiting fiber.
    #[derive(Default)]
    struct Slot(Cell<Option<u32>>, Cell<Option<Waker>>);

    impl Slot {
        fn set(&self, value: u32) {
            self.0.set(Some(value));
            self.1.take().expect("a fiber waits").wake();
        }

        fn wait(&self) -> u32 {
            let poll = |context: &mut Context<'_>| match self.0.take() {
                Some(value) => Poll::Ready(value),
                None => {
                    self.1.set(Some(context.waker().clone()));
                    Poll::Pending
                }
            };
            wait(poll).expect("inside a fiber")
        }
    }

    #[test]
    fn fibers_are_suspended_and_continue_independently() {
        let slots = [Rc::new(Slot::default()), Rc::new(Slot::default())];
        let wakes = [Arc::new(Count::default()), Arc::new(Count::default())];
        let mut fibers = slots.clone().map(|slot| Fiber::new(async move { slot.wait() + slot.wait() }));
        let wakers = wakes.clone().map(Waker::from);
        let poll = |fiber: &mut Fiber<_>, index: usize| {
            Pin::new(fiber).poll(&mut Context::from_waker(&wakers[index])).map(Result::unwrap)
        };
        for (index, fiber) in fibers.iter_mut().enumerate() {
            assert_eq!(poll(fiber, index), Poll::Pending);
        }
        assert_eq!(suspended(), 2);
        assert_eq!(poll(&mut fibers[0], 0), Poll::Pending, "a spurious wake-up");
        for index in [1, 0] {
            slots[index].set(10);
            assert_eq!(poll(&mut fibers[index], index), Poll::Pending);
        }
        for index in [1, 0] {
            slots[index].set(5);
            assert_eq!(poll(&mut fibers[index], index), Poll::Ready(15));
            assert_eq!(wakes[index].0.load(Ordering::Relaxed), 2);
        }
        assert_eq!(suspended(), 0);
        assert!(wait(|_| Poll::Ready(())).is_none(), "outside a fiber");
    }

    #[test]
    fn dropping_a_suspended_fiber_runs_destructors() {
        let (slot, held) = (Rc::new(Slot::default()), Rc::new(()));
        let (waiting, guard) = (Rc::clone(&slot), Rc::clone(&held));
        let mut fiber = Fiber::new(async move {
            let _guard = guard;
            waiting.wait()
        });
        let waker = Waker::from(Arc::new(Count::default()));
        assert!(Pin::new(&mut fiber).poll(&mut Context::from_waker(&waker)).is_pending());
        drop(fiber);
        assert_eq!((Rc::strong_count(&held), suspended()), (1, 0));
    }

    #[test]
    fn a_panic_reaches_the_caller() {
        let mut fiber = Fiber::new(async { panic!("in the fiber") });
        let waker = Waker::from(Arc::new(Count::default()));
        let poll = std::panic::AssertUnwindSafe(|| {
            let _: Poll<std::io::Result<()>> = Pin::new(&mut fiber).poll(&mut Context::from_waker(&waker));
        });
        let panic = std::panic::catch_unwind(poll).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"in the fiber"));
        assert!(wait(|_| Poll::Ready(())).is_none(), "outside a fiber");
    }
}
