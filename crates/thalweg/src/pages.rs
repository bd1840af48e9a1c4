//! `thalweg pages`: manual pages and completions for shells, made from the definition of the command line.

use std::fs;
use std::io;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::Failure;
use crate::cli::{Cli, PagesArgs};

/// Writes them below a folder as below `/usr/share`.
pub(crate) fn run(args: &PagesArgs) -> Result<(), Failure> {
    let write = || -> io::Result<()> {
        let manual = args.folder.join("man/man1");
        fs::create_dir_all(&manual)?;
        clap_mangen::generate_to(Cli::command(), &manual)?;
        let completions = [
            (Shell::Bash, "bash-completion/completions"),
            (Shell::Zsh, "zsh/vendor-completions"),
            (Shell::Fish, "fish/vendor_completions.d"),
        ];
        for (shell, folder) in completions {
            let folder = args.folder.join(folder);
            fs::create_dir_all(&folder)?;
            let path = clap_complete::generate_to(shell, &mut Cli::command(), "thalweg", &folder)?;
            // Bash looks for the command's own name.
            if shell == Shell::Bash {
                fs::rename(path, folder.join("thalweg"))?;
            }
        }
        Ok(())
    };
    write().map_err(|error| Failure::Run(format!("cannot write below {}: {error}", args.folder.display())))
}
