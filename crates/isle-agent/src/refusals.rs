//! Answering refused system calls: `EPERM`, and a note in the run that tried; or what only the agent can
//! give: sockets where nobody has any, and where a connection leads.

use std::os::fd::AsFd;
use std::rc::Rc;

use isle_linux::setup::CONTROL_CALL;
use isle_linux::setup::seccomp::{Inherited, Listener, Notification};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::serve::Shared;
use crate::watched::watch;
use crate::{control, network, tree};

pub(crate) async fn answer(listener: Listener, agent: Shared) {
    let Ok(listener) = watch(listener).map(Rc::new) else { return };
    loop {
        let Ok(mut ready) = listener.readable().await else { return };
        // Receiving waits when there is nothing, and it would be the whole agent that waits.
        if !is_pending(listener.get_ref()) {
            ready.clear_ready();
            continue;
        }
        // An error means that the asker was killed before it was heard.
        let Ok(notification) = listener.get_ref().receive() else { continue };
        if asks_for_control(&notification)
            && let Some(connection) = control::connection(&agent).await
            && listener.get_ref().hand(notification, connection.as_fd(), Inherited::No).is_ok()
        {
            continue;
        }
        if network::attempt(&agent, &listener, notification)
            || network::answer(&agent, listener.get_ref(), notification)
        {
            continue;
        }
        let pid = i32::try_from(notification.pid).unwrap_or(0);
        if let Some(run) = tree::run_of(&agent, pid) {
            *run.state.borrow_mut().refused.entry(notification.number).or_default() += 1;
        }
        // The asker may have been killed meanwhile; then nobody waits for the answer.
        listener.get_ref().refuse(notification, libc::EPERM).ok();
    }
}

/// Whether it is how `isle-ctl` asks for a connection where nobody has sockets. Arguments are registers,
/// which nobody changes while the call waits.
fn asks_for_control(notification: &Notification) -> bool {
    libc::c_long::from(notification.number) == libc::SYS_connect && notification.int(0) == CONTROL_CALL
}

fn is_pending(listener: &Listener) -> bool {
    let mut descriptors = [PollFd::new(listener, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut descriptors, Some(&now)).is_ok() && descriptors[0].revents().contains(PollFlags::IN)
}
