//! Answering seccomp notifications: `EPERM`, recorded in the run that made the call; or what only the agent
//! can provide, such as socket pairs and connections to the gate.

use std::os::fd::AsFd;
use std::rc::Rc;

use isle_setup::CONTROL_CALL;
use isle_setup::seccomp::{Inherited, Listener, Notification};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::async_fd::register;
use crate::serve::Shared;
use crate::{control_socket, network, processes};

pub(crate) async fn answer(listener: Listener, agent: Shared) {
    let Ok(listener) = register(listener).map(Rc::new) else { return };
    loop {
        let Ok(mut ready) = listener.readable().await else { return };
        // Receiving blocks when there is no notification, and would block the whole agent.
        if !is_pending(listener.get_ref()) {
            ready.clear_ready();
            continue;
        }
        // An error means that the process was killed meanwhile.
        let Ok(notification) = listener.get_ref().receive() else { continue };
        if asks_for_control(&notification)
            && let Some(connection) = control_socket::connection(&agent).await
            && listener.get_ref().hand(notification, connection.as_fd(), Inherited::No).is_ok()
        {
            continue;
        }
        if network::intercept(&agent, &listener, notification)
            || network::answer(&agent, listener.get_ref(), notification)
        {
            continue;
        }
        let pid = i32::try_from(notification.pid).unwrap_or(0);
        if let Some(run) = processes::run_of(&agent, pid) {
            *run.state.borrow_mut().denied_calls.entry(notification.number).or_default() += 1;
        }
        // The process may have been killed meanwhile.
        listener.get_ref().refuse(notification, libc::EPERM).ok();
    }
}

/// Whether it is how `isle-ctl` asks for a connection where programs cannot create sockets. The arguments are
/// registers, which cannot change while the call waits.
fn asks_for_control(notification: &Notification) -> bool {
    libc::c_long::from(notification.number) == libc::SYS_connect && notification.int(0) == CONTROL_CALL
}

fn is_pending(listener: &Listener) -> bool {
    let mut descriptors = [PollFd::new(listener, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut descriptors, Some(&now)).is_ok() && descriptors[0].revents().contains(PollFlags::IN)
}
