//! A completion queue, and how to wait for its completions.

use std::ffi::CStr;
use std::marker::PhantomData;
use std::mem::zeroed;
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rdma_sys::{
    ibv_ack_cq_events, ibv_comp_channel, ibv_cq, ibv_create_comp_channel, ibv_create_cq,
    ibv_destroy_comp_channel, ibv_destroy_cq, ibv_get_cq_event, ibv_poll_cq, ibv_req_notify_cq, ibv_wc,
    ibv_wc_status, ibv_wc_status_str,
};

use super::device::OpenDevice;
use super::failure::{Failure, done, made};

/// How long to poll the queue before the process sleeps. A device completes a small request in a few
/// microseconds, and waking the process takes longer.
const SPIN: Duration = Duration::from_micros(50);

/// The bit that is set in the opcode of each completion of a received message (`IBV_WC_RECV`).
const RECEIVED: u32 = 1 << 7;

/// What a completion reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Completion {
    /// This end's request is complete.
    Sent,
    /// A message from the other end has arrived.
    Received,
}

pub(crate) struct Completions<'a> {
    queue: NonNull<ibv_cq>,
    /// The channel is dropped after the queue, which uses it.
    channel: Channel<'a>,
}

struct Channel<'a> {
    channel: NonNull<ibv_comp_channel>,
    _device: PhantomData<&'a OpenDevice>,
}

impl Drop for Channel<'_> {
    fn drop(&mut self) {
        // SAFETY: the channel is destroyed only here, after its queue.
        unsafe { ibv_destroy_comp_channel(self.channel.as_ptr()) };
    }
}

impl<'a> Completions<'a> {
    /// Makes a queue with room for this many completions (ibv_create_cq(3)).
    ///
    /// # Errors
    /// ENOMEM, which may also mean that the provider cannot pin the queue's memory
    /// (RLIMIT_MEMLOCK).
    pub(crate) fn new(device: &'a OpenDevice, room: i32) -> Result<Completions<'a>, Failure> {
        // SAFETY: the device is open, and outlives the channel by the lifetime.
        let channel = made(unsafe { ibv_create_comp_channel(device.raw()) })?;
        let channel = Channel { channel, _device: PhantomData };
        // SAFETY: as above; the channel is dropped after the queue.
        let queue =
            made(unsafe { ibv_create_cq(device.raw(), room, null_mut(), channel.channel.as_ptr(), 0) })?;
        Ok(Completions { queue, channel })
    }

    pub(super) fn raw(&self) -> *mut ibv_cq {
        self.queue.as_ptr()
    }

    /// Waits for the next completion and returns what it reports.
    ///
    /// # Errors
    /// The request's error, or a failure that says that no completion arrived in time or that the
    /// device was removed.
    pub(crate) fn next(&self, until: Instant) -> Result<Completion, Failure> {
        let spin = Instant::now() + SPIN;
        loop {
            if let Some(of) = self.take()? {
                return Ok(of);
            }
            if Instant::now() >= spin {
                break;
            }
        }
        loop {
            // SAFETY: the queue is alive.
            done(unsafe { ibv_req_notify_cq(self.raw(), 0) })?;
            // A completion that arrived before this call raises no event.
            if let Some(of) = self.take()? {
                return Ok(of);
            }
            self.sleep(until)?;
        }
    }

    /// Waits for this many completions.
    ///
    /// # Errors
    /// As for [`Completions::next`].
    pub(crate) fn several(&self, count: usize, until: Instant) -> Result<(), Failure> {
        (0..count).try_for_each(|_| self.next(until).map(drop))
    }

    /// Takes a completion out of the queue (ibv_poll_cq(3)), if there is one.
    fn take(&self) -> Result<Option<Completion>, Failure> {
        // SAFETY: the completion is plain data, for which all zeros are valid; the queue is
        // alive.
        let (count, completion) = unsafe {
            let mut completion: ibv_wc = zeroed();
            (ibv_poll_cq(self.raw(), 1, &mut completion), completion)
        };
        match (count, completion.status) {
            (0, _) => Ok(None),
            (1.., ibv_wc_status::IBV_WC_SUCCESS) if completion.opcode & RECEIVED != 0 => {
                Ok(Some(Completion::Received))
            }
            (1.., ibv_wc_status::IBV_WC_SUCCESS) => Ok(Some(Completion::Sent)),
            (1.., status) => Err(Failure::Completion { status, text: text(status) }),
            _ => Err(Errno::EIO.into()),
        }
    }

    fn sleep(&self, until: Instant) -> Result<(), Failure> {
        // SAFETY: the channel is open as long as the borrow lasts.
        let fd = unsafe { BorrowedFd::borrow_raw(self.channel.channel.as_ref().fd) };
        let left = until.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
        match poll(&mut fds, timeout) {
            Ok(0) if left < Duration::from_millis(1) => Err(Failure::NoCompletion),
            Ok(0) | Err(Errno::EINTR) => Ok(()),
            Ok(_) if fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLIN)) => {
                self.acknowledge()
            }
            // The kernel's `ib_uverbs_event_poll` reports this when the device is gone.
            Ok(_) => Err(Failure::Removed),
            Err(errno) => Err(errno.into()),
        }
    }

    fn acknowledge(&self) -> Result<(), Failure> {
        let (mut queue, mut context) = (null_mut(), null_mut());
        // SAFETY: the pointers are valid. The event belongs to the channel's only queue. It is
        // acknowledged because ibv_destroy_cq(3) would otherwise wait for that.
        unsafe {
            done(ibv_get_cq_event(self.channel.channel.as_ptr(), &mut queue, &mut context))?;
            ibv_ack_cq_events(queue, 1);
        }
        Ok(())
    }
}

impl Drop for Completions<'_> {
    fn drop(&mut self) {
        // SAFETY: the queue is destroyed only here; the queue pairs that use it borrow from
        // this object.
        unsafe { ibv_destroy_cq(self.raw()) };
    }
}

/// Returns libibverbs' own text, such as `transport retry counter exceeded`.
fn text(status: ibv_wc_status::Type) -> String {
    // SAFETY: the text of any number is a constant of the library.
    unsafe { CStr::from_ptr(ibv_wc_status_str(status)) }.to_string_lossy().into_owned()
}
