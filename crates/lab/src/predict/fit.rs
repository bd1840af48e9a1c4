//! Fits Amdahl's law and the universal scalability law to a curve by least squares.
//!
//! C(N) = N / (1 + s (N - 1) + k N (N - 1)); Amdahl's law is that with k = 0. N / C - 1 is linear in s and k, so
//! both follow from sums. Neither may be negative: a parameter that would be is left out.

use serde::Serialize;

/// The parameters of a law.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fit {
    /// The share of the work that only one core at a time can do.
    pub serial: f64,
    /// The cost that each pair of cores causes; 0 in Amdahl's law.
    pub crosstalk: f64,
}

impl Fit {
    /// Amdahl's law for points of cores and speed-up.
    pub fn amdahl(points: &[(f64, f64)]) -> Fit {
        let [xx, _, _, xz, _] = sums(points);
        Fit { serial: ratio(xz, xx), crosstalk: 0.0 }
    }

    /// Gunther's universal scalability law.
    pub fn usl(points: &[(f64, f64)]) -> Fit {
        let [xx, xy, yy, xz, yz] = sums(points);
        let determinant = xx * yy - xy * xy;
        if determinant <= f64::EPSILON * xx * yy {
            return Fit::amdahl(points);
        }
        let (serial, crosstalk) = ((xz * yy - yz * xy) / determinant, (yz * xx - xz * xy) / determinant);
        match (serial < 0.0, crosstalk < 0.0) {
            (false, false) => Fit { serial, crosstalk },
            (true, _) => Fit { serial: 0.0, crosstalk: ratio(yz, yy) },
            (false, true) => Fit::amdahl(points),
        }
    }

    /// The law's speed-up for this many cores.
    pub fn speed_up(&self, cores: f64) -> f64 {
        cores / (1.0 + self.serial * (cores - 1.0) + self.crosstalk * cores * (cores - 1.0))
    }
}

/// Sums over x = N - 1, y = N (N - 1), z = N / C - 1: of xx, xy, yy, xz, yz.
fn sums(points: &[(f64, f64)]) -> [f64; 5] {
    let mut sums = [0.0; 5];
    for &(cores, speed_up) in points {
        let (x, y, z) = (cores - 1.0, cores * (cores - 1.0), cores / speed_up - 1.0);
        for (sum, term) in sums.iter_mut().zip([x * x, x * y, y * y, x * z, y * z]) {
            *sum += term;
        }
    }
    sums
}

fn ratio(above: f64, below: f64) -> f64 {
    if below > 0.0 { (above / below).max(0.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_law_is_found_again_in_its_own_points() {
        for law in [Fit { serial: 0.05, crosstalk: 0.0 }, Fit { serial: 0.02, crosstalk: 0.001 }] {
            let points = [1.0, 2.0, 4.0, 8.0, 32.0].map(|cores| (cores, law.speed_up(cores)));
            let found = Fit::usl(&points);
            assert!((found.serial - law.serial).abs() < 1e-9, "{found:?}");
            assert!((found.crosstalk - law.crosstalk).abs() < 1e-9, "{found:?}");
        }
        let amdahl = Fit { serial: 0.1, crosstalk: 0.0 };
        let points = [1.0, 2.0, 4.0].map(|cores| (cores, amdahl.speed_up(cores)));
        assert!((Fit::amdahl(&points).serial - 0.1).abs() < 1e-9);
        assert_eq!(Fit::usl(&[(1.0, 1.0)]), Fit { serial: 0.0, crosstalk: 0.0 });
    }
}
