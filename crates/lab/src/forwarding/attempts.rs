//! Rounds over routers of which some cannot be measured.

use super::ForwardingError;
use crate::rounds::{RunOptions, Turn};

/// What the rounds came to.
pub(crate) struct Attempts<R> {
    /// Of each, in the order of the names.
    pub(crate) runs: Vec<Vec<R>>,
    /// Who was left out, and why.
    pub(crate) left_out: Vec<String>,
}

/// Measures each of these in each round. Calls `step` with the number of steps done, their total and the next one. One
/// that fails is left out from then on.
pub(crate) fn attempts<R>(
    (rounds, seed): (usize, u64),
    names: &[String],
    step: &mut dyn FnMut(usize, usize, &str),
    mut once: impl FnMut(usize) -> Result<R, ForwardingError>,
) -> Result<Attempts<R>, ForwardingError> {
    let mut runs: Vec<Vec<R>> = names.iter().map(|_| Vec::new()).collect();
    let mut left_out: Vec<Option<String>> = vec![None; names.len()];
    let order = RunOptions { runs: rounds, warm_ups: 0, seed };
    order.rounds(names.len(), |Turn { at, done, total, .. }| {
        step(done, total, &names[at]);
        if left_out[at].is_some() {
            return Ok(());
        }
        match once(at) {
            Ok(run) => runs[at].push(run),
            Err(ForwardingError::Interrupted) => return Err(ForwardingError::Interrupted),
            Err(error) => left_out[at] = Some(format!("{}: {error}", names[at])),
        }
        Ok(())
    })?;
    Ok(Attempts { runs, left_out: left_out.into_iter().flatten().collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_fails_is_left_out_from_then_on() {
        let names = ["a", "b", "c"].map(str::to_owned);
        let (mut tries, mut steps) = ([0; 3], 0);
        let found = attempts((4, 1), &names, &mut |_, total, _| steps += usize::from(total == 12), |at| {
            tries[at] += 1;
            if at == 1 && tries[at] == 2 { Err(ForwardingError::Nothing(Vec::new())) } else { Ok(at) }
        });
        let found = found.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((tries, steps), ([4, 2, 4], 12));
        assert_eq!(found.runs, [vec![0; 4], vec![1], vec![2; 4]]);
        assert!(found.left_out.len() == 1 && found.left_out[0].starts_with("b: "), "{:?}", found.left_out);
        let ended =
            attempts((4, 1), &names, &mut |_, _, _| {}, |_| Err::<(), _>(ForwardingError::Interrupted));
        assert!(matches!(ended, Err(ForwardingError::Interrupted)));
    }
}
