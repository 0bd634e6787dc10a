//! Frames and messages between host and agent. The host reads what a hostile agent wrote.

use futures::FutureExt;
use isle_wire::{
    ExecControl, ExecEvent, Frame, MAX_FRAME, Reply, Request, RunList, Welcome, WriteHeader, read_frame,
};
use minicbor::{Decode, Encode};

pub(crate) fn run(bytes: &[u8]) {
    // As a stream of frames.
    let mut stream = bytes;
    while let Ok(Some(frame)) = read_frame(&mut stream).now_or_never().unwrap() {
        if let Frame::Message(payload) = &frame {
            assert!(payload.len() <= MAX_FRAME);
            every_type(&frame);
        }
    }
    // As one message.
    every_type(&Frame::Message(bytes.to_vec().into()));
}

fn every_type(frame: &Frame) {
    round::<Request>(frame);
    round::<Welcome>(frame);
    round::<ExecControl>(frame);
    round::<ExecEvent>(frame);
    round::<RunList>(frame);
    round::<WriteHeader>(frame);
    round::<Reply>(frame);
}

/// What was read once is read again, after it was written, as the same.
fn round<T: Encode<()> + for<'b> Decode<'b, ()>>(frame: &Frame) {
    let Ok(message) = frame.decode::<T>() else { return };
    let Frame::Message(written) = Frame::message(&message) else { return };
    let again = Frame::message(&Frame::Message(written.clone()).decode::<T>().unwrap());
    assert_eq!(again, Frame::Message(written));
}
