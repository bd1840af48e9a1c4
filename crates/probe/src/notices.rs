//! Messages from the threads of a run to its supervisor.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use thalweg_store::{Notify, Severity};

use crate::ProbeProgress;

/// The capacity of the queue; further messages are dropped, so that no thread waits.
const MESSAGES_MAX: usize = 64;

/// Runs `work`, and meanwhile passes on its messages ([`Notify`]) at once.
pub(crate) fn passing_on<R>(progress: &dyn ProbeProgress, work: impl FnOnce(Notify) -> R) -> R {
    thread::scope(|scope| {
        let (sender, messages) = sync_channel::<Option<(Severity, String)>>(MESSAGES_MAX);
        scope.spawn(move || {
            // The end is an explicit message, so a leftover thread with a sender does not delay it.
            for (severity, text) in messages.iter().map_while(|message| message) {
                match severity {
                    Severity::Info => progress.note(&text),
                    Severity::Warning => progress.notice(&text),
                }
            }
        });
        let result = work(notify(sender.clone()));
        // If the receiver is gone, nobody needs the message.
        let _ = sender.send(None);
        result
    })
}

fn notify(sender: SyncSender<Option<(Severity, String)>>) -> Notify {
    // A message without room is one of many.
    Notify::new(move |severity, text| drop(sender.try_send(Some((severity, text.to_owned())))))
}
