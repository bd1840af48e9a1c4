//! System calls that a signal ended.

use std::io;

/// Makes a call again that a signal ended. The kernel ends every read of a socket with a timeout when the process is
/// stopped and goes on, whatever its signal handlers say.
#[inline]
pub fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    #[test]
    fn what_a_signal_ended_is_done_again() {
        let mut results = [Ok(7), Err(io::ErrorKind::Interrupted), Err(io::ErrorKind::Interrupted)].to_vec();
        let result = super::uninterrupted(|| {
            results.pop().expect("no call more than it takes").map_err(io::Error::from)
        });
        assert_eq!(result.expect("the third call succeeds"), 7);
    }
}
