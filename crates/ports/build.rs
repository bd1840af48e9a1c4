//! Builds the C side of the optional driver `dpdk`. Without that feature there is nothing to do.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "dpdk")]
    if let Err(why) = dpdk::build() {
        println!("cargo::error={why}");
    }
}

#[cfg(feature = "dpdk")]
mod dpdk {
    use std::process::Command;

    const SHIM: &str = "src/live/dpdk/shim.c";

    /// The oldest DPDK that has the names used here.
    const VERSION_MIN: &str = "21.11";

    const REMEDY: &str =
        "install it (Debian, Ubuntu: `apt-get install libdpdk-dev`) or build without the feature `dpdk`";

    /// Compiles the shim, and has the program linked with DPDK's shared libraries.
    pub(crate) fn build() -> Result<(), String> {
        println!("cargo::rerun-if-changed={SHIM}");
        println!("cargo::rerun-if-env-changed=PKG_CONFIG_PATH");
        ask(&[&format!("--atleast-version={VERSION_MIN}")]).map_err(|why| {
            format!("the feature `dpdk` needs DPDK {VERSION_MIN} or newer: {why}; {REMEDY}")
        })?;
        let mut shim = cc::Build::new();
        shim.file(SHIM).warnings(true);
        // The include paths, and what inline functions in DPDK's headers take for granted of the processor.
        for flag in ask(&["--cflags"])?.split_whitespace() {
            shim.flag(flag);
        }
        shim.try_compile("thalweg_dpdk").map_err(|error| format!("{SHIM}: {error}"))?;
        for flag in ask(&["--libs"])?.split_whitespace() {
            if let Some(library) = flag.strip_prefix("-l") {
                println!("cargo::rustc-link-lib={library}");
            } else if let Some(folder) = flag.strip_prefix("-L") {
                println!("cargo::rustc-link-search=native={folder}");
            }
        }
        Ok(())
    }

    fn ask(arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new("pkg-config");
        let output = command.args(arguments).arg("--print-errors").arg("libdpdk").output();
        let output = output.map_err(|error| format!("pkg-config does not run ({error})"))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ")),
        }
    }
}
