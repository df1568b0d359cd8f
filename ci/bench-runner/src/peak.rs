//! The cost of a program including its memory, measured by `weir-bench-peak`.

use crate::report::{Goal, Report};
use crate::run::Call;
use crate::setup::Setup;
use crate::stats::ratio;

/// The samples of one way.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    /// The elapsed time in microseconds.
    wall: Vec<f64>,
    /// User and system time in microseconds.
    cpu: Vec<f64>,
    /// The system time in it. Kernels count it in ticks of several milliseconds, so only the sum is meaningful.
    system: Vec<f64>,
    /// The peak of resident memory in KiB.
    peak: Vec<f64>,
}

impl Samples {
    /// Runs the program and adds a sample.
    pub(crate) fn add(&mut self, setup: &Setup, call: &Call) -> Result<(), String> {
        let mut measured = call.clone();
        measured.arguments.insert(0, setup.peak.clone());
        let text = measured.output()?;
        let numbers: Vec<f64> = text.split_whitespace().flat_map(str::parse).collect();
        let [wall, cpu, system, peak] = numbers[..] else {
            return Err(format!("{}: printed {text}", setup.peak));
        };
        self.wall.push(wall);
        self.cpu.push(cpu);
        self.system.push(system);
        self.peak.push(peak);
        Ok(())
    }

    pub(crate) fn report(&self, name: &str, report: &mut Report) {
        report.arm(&format!("{name}, wall"), "us", &self.wall);
        report.arm(&format!("{name}, cpu"), "us", &self.cpu);
        report.arm(&format!("{name}, peak memory"), "KiB", &self.peak);
    }

    pub(crate) fn wall_goal(&self, to: &Self, name: &str, limit: f64, report: &mut Report) {
        let ratio = ratio(&self.wall, &to.wall);
        report.goal(&format!("{name}, wall"), ratio, Goal::AtMost(limit));
        // The kernel's share, which no program can avoid: a lower goal could not be met.
        let sum = |samples: &[f64]| samples.iter().sum::<f64>();
        let share = sum(&self.system) / sum(&self.cpu);
        report.fact("  of which in the kernel", ratio.value * share);
    }

    pub(crate) fn peak_goal(&self, to: &Self, name: &str, limit: f64, report: &mut Report) {
        let ratio = ratio(&self.peak, &to.peak);
        report.goal(&format!("{name}, peak memory"), ratio, Goal::AtMost(limit));
    }

    /// Reports the peak of a program that does nothing, as a share of this one's.
    pub(crate) fn peak_floor(&self, empty: &Self, report: &mut Report) {
        let floor = ratio(&empty.peak, &self.peak);
        report.fact("  where an empty program has", floor.value);
    }
}
