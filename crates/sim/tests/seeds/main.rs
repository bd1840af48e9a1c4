//! Seeds: the first ones hold, plans survive their files, and what fails is found again and shrunk.

use thalweg_sim::seeds::{Plan, Verdict, run};

#[test]
fn the_first_seeds_hold() {
    let count = std::env::var("THALWEG_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(200);
    let begun = std::time::Instant::now();
    let mut coverage = thalweg_sim::seeds::Coverage::default();
    let mut bad = 0;
    for seed in 0..count {
        let plan = Plan::draw(seed);
        let trial = run(&plan, 1, None);
        coverage.add(&trial.coverage);
        if let Verdict::Broken(violation) = trial.verdict {
            let text = violation.to_string();
            println!("seed {seed} ({} routers): {}", plan.routers.len(), &text[..text.len().min(400)]);
            bad += 1;
            if std::env::var_os("SHRINK").is_some() {
                let shrunk = thalweg_sim::seeds::shrink(&plan, 3000).expect("it fails");
                println!("tried {}: {}\n{}", shrunk.tried, shrunk.violation, shrunk.plan.to_text());
            }
            if bad > 12 {
                break;
            }
        }
    }
    println!("{:?}", begun.elapsed());
    for (name, trials) in coverage.items() {
        println!("{trials:6} {name}");
    }
    assert_eq!(bad, 0);
}
