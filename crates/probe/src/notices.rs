//! Messages from the threads of a run to its supervisor.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use thalweg_store::{Notify, Severity};

use crate::ProbeProgress;

/// Messages that may wait; more are dropped, so that no thread waits.
const MESSAGES_MAX: usize = 64;

/// Does `work`, and passes on what it tells by [`Notify`] meanwhile, at once.
pub(crate) fn passing_on<R>(progress: &dyn ProbeProgress, work: impl FnOnce(Notify) -> R) -> R {
    thread::scope(|scope| {
        let (sender, messages) = sync_channel::<Option<(Severity, String)>>(MESSAGES_MAX);
        scope.spawn(move || {
            // The end is said: a thread that is left over, with a sender of its own, is not waited for.
            for (severity, text) in messages.iter().map_while(|message| message) {
                match severity {
                    Severity::Info => progress.note(&text),
                    Severity::Warning => progress.notice(&text),
                }
            }
        });
        let result = work(notify(sender.clone()));
        // If nobody listens any more there is nobody to be told.
        let _ = sender.send(None);
        result
    })
}

fn notify(sender: SyncSender<Option<(Severity, String)>>) -> Notify {
    // A message for which there is no room is one of many.
    Notify::new(move |severity, text| drop(sender.try_send(Some((severity, text.to_owned())))))
}
