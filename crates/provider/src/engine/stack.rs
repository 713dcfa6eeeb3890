//! Larger stack for signatures. An asynchronous job of OpenSSL has a stack of 32 KiB.

use std::cell::RefCell;

use corosensei::stack::DefaultStack;

const STACK_BYTES: usize = 1 << 20;

thread_local! {
    static STACK: RefCell<Option<DefaultStack>> = const { RefCell::new(None) };
}

/// Calls `work` on a stack of 1 MiB. `work` must not pause an asynchronous job.
pub(crate) fn on_large_stack<T>(work: impl FnOnce() -> T) -> T {
    let kept = STACK.with_borrow_mut(Option::take);
    let Some(mut stack) = kept.or_else(|| DefaultStack::new(STACK_BYTES).ok()) else {
        // Without memory for a stack, the signature would fail soon as well.
        return work();
    };
    let result = corosensei::on_stack(&mut stack, work);
    STACK.with_borrow_mut(|kept| *kept = Some(stack));
    result
}
