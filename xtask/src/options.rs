//! The options of tasks that take a number and names.

/// `[--FLAG N] [NAME]..`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) number: u64,
    pub(crate) names: Vec<String>,
}

impl Options {
    /// Reads the arguments of a task; `usual` is the number if none is given.
    pub(crate) fn parse(task: &str, flag: &str, usual: u64, args: &[String]) -> Result<Self, String> {
        let mut options = Self { number: usual, names: Vec::new() };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            if arg == flag {
                let given = args.next().map_or("", String::as_str);
                let number = given.parse().ok().filter(|number| *number > 0);
                options.number =
                    number.ok_or_else(|| format!("{flag} takes a whole number from 1, not `{given}`"))?;
            } else if arg.starts_with('-') {
                return Err(format!("{task} does not know `{arg}`"));
            } else {
                options.names.push(arg.clone());
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::Options;

    #[test]
    fn a_number_and_names() {
        let parse = |args: &[&str]| {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            Options::parse("fuzz", "--seconds", 60, &args)
        };
        assert_eq!(parse(&[]).unwrap(), Options { number: 60, names: vec![] });
        let all = parse(&["a", "--seconds", "5", "b"]).unwrap();
        assert_eq!(all, Options { number: 5, names: vec!["a".to_owned(), "b".to_owned()] });
        assert!(parse(&["--seconds"]).is_err());
        assert!(parse(&["--seconds", "0"]).unwrap_err().contains("from 1"));
        assert!(parse(&["--seconds", "-3"]).is_err());
        assert_eq!(parse(&["--forever"]).unwrap_err(), "fuzz does not know `--forever`");
    }
}
