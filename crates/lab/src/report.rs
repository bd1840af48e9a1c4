//! Writes reports: one self-contained HTML file, and the same numbers as `results.json`.
//!
//! A report requires an [`Origin`]: machine, commit, command and input. What is not known is written as "unknown",
//! never left out.
//!
//! The page has no script and no resource from elsewhere, follows the reader's light or dark setting, and prints.
//! All text is escaped here, whatever its source; [`crate::plot`] escapes the text of its drawings.
//!
//! Both files are written under another name and renamed, so that a reader never sees half of one.

mod origin;

pub use origin::{Machine, Origin};

use crate::claims::Verdict;
use crate::markup::escape;
use crate::plot;
use serde::Serialize;
use std::path::{Path, PathBuf};
use thalweg_text::{Align, Table};

/// Why a report could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The file system refused.
    #[error("{path}: {source}")]
    File {
        /// The file or folder.
        path: PathBuf,
        source: std::io::Error,
    },
    /// The results have no JSON form.
    #[error("cannot write the results as JSON: {0}")]
    Results(#[source] serde_json::Error),
}

/// Columns of a table from headings separated by ` | `: text is aligned left if its heading begins with `<`;
/// numbers are aligned right.
pub(crate) fn columns(headings: &str) -> impl Iterator<Item = (&str, Align)> {
    headings.split(" | ").map(|heading| match heading.strip_prefix('<') {
        Some(words) => (words, Align::Left),
        None => (heading, Align::Right),
    })
}

/// The tables that have rows.
pub(crate) fn filled(tables: impl IntoIterator<Item = Table>) -> Vec<Table> {
    tables.into_iter().filter(|table| !table.rows().is_empty()).collect()
}

#[derive(Clone, Debug)]
enum Block {
    Heading(String),
    Paragraph(String),
    Table(Table),
    Plot { svg: String, caption: String },
    Notes(Vec<String>),
}

/// The contents of a report, in reading order.
#[derive(Clone, Debug)]
pub struct Report {
    title: String,
    lead: String,
    origin: Origin,
    blocks: Vec<Block>,
}

impl Report {
    /// An empty report. `lead` gives the findings or the question in one or two sentences.
    pub fn new(title: impl Into<String>, lead: impl Into<String>, origin: Origin) -> Self {
        Self { title: title.into(), lead: lead.into(), origin, blocks: Vec::new() }
    }

    /// The findings or the question.
    pub fn lead(&self) -> &str {
        &self.lead
    }

    /// Begins a section.
    pub fn heading(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Heading(text.into()));
    }

    /// Adds a paragraph.
    pub fn paragraph(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Paragraph(text.into()));
    }

    /// Adds a table.
    pub fn table(&mut self, table: Table) {
        self.blocks.push(Block::Table(table));
    }

    /// Adds tables.
    pub fn tables(&mut self, tables: impl IntoIterator<Item = Table>) {
        self.blocks.extend(tables.into_iter().map(Block::Table));
    }

    /// Adds a drawing of [`crate::plot`], with a sentence on how to read it.
    pub fn plot(&mut self, svg: String, caption: impl Into<String>) {
        self.blocks.push(Block::Plot { svg, caption: caption.into() });
    }

    /// Adds remarks.
    pub fn notes<S: Into<String>>(&mut self, notes: impl IntoIterator<Item = S>) {
        self.blocks.push(Block::Notes(notes.into_iter().map(Into::into).collect()));
    }

    /// Adds a section on what was not measured, if anything.
    pub fn left_out(&mut self, what: &[String]) {
        if !what.is_empty() {
            self.heading("Left out");
            self.notes(what.iter().map(String::as_str));
        }
    }

    /// The page as HTML.
    pub fn html(&self) -> String {
        let mut body = String::new();
        for block in &self.blocks {
            match block {
                Block::Heading(text) => body.push_str(&format!("<h2>{}</h2>\n", escape(text))),
                Block::Paragraph(text) => body.push_str(&format!("<p>{}</p>\n", escape(text))),
                Block::Table(table) => body.push_str(&html_table(table)),
                Block::Plot { svg, caption } => body.push_str(&format!(
                    "<figure>\n{svg}<figcaption>{}</figcaption>\n</figure>\n",
                    escape(caption)
                )),
                Block::Notes(notes) => {
                    let items: String = notes.iter().map(|n| format!("<li>{}</li>\n", escape(n))).collect();
                    body.push_str(&format!("<ul>\n{items}</ul>\n"));
                }
            }
        }
        let facts: String = self
            .origin
            .facts()
            .iter()
            .map(|(name, value)| format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(value)))
            .collect();
        let (title, lead) = (escape(&self.title), escape(&self.lead));
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
             <style>\n{PAGE_STYLE}{}</style>\n</head>\n<body>\n<main>\n\
             <h1>{title}</h1>\n<p class=\"lead\">{lead}</p>\n{body}\
             <h2>Where these numbers come from</h2>\n<dl>\n{facts}</dl>\n</main>\n</body>\n</html>\n",
            plot::STYLE
        )
    }

    /// The experiment's `results` with title and origin, as JSON.
    pub fn json(&self, results: &impl Serialize) -> Result<String, ReportError> {
        #[derive(Serialize)]
        struct Document<'a, R> {
            title: &'a str,
            origin: &'a Origin,
            results: &'a R,
        }
        let document = Document { title: &self.title, origin: &self.origin, results };
        let mut json = serde_json::to_string_pretty(&document).map_err(ReportError::Results)?;
        json.push('\n');
        Ok(json)
    }

    /// Writes `report.html` and `results.json` into `folder`, which is created if needed. Returns the page's path.
    pub fn write(&self, folder: &Path, results: &impl Serialize) -> Result<PathBuf, ReportError> {
        let json = self.json(results)?;
        std::fs::create_dir_all(folder)
            .map_err(|source| ReportError::File { path: folder.to_path_buf(), source })?;
        put(&folder.join("results.json"), &json)?;
        let page = folder.join("report.html");
        put(&page, &self.html())?;
        Ok(page)
    }
}

/// Writes a file under another name and renames it.
fn put(path: &Path, text: &str) -> Result<(), ReportError> {
    let beside = path.with_extension("unfinished");
    std::fs::write(&beside, text)
        .and_then(|()| std::fs::rename(&beside, path))
        .map_err(|source| ReportError::File { path: path.to_path_buf(), source })
}

fn html_table(table: &Table) -> String {
    let cells = |tag: &str, texts: &mut dyn Iterator<Item = &String>| -> String {
        let columns = table.columns().iter().map(|(_, align)| *align);
        texts
            .zip(columns)
            .map(|(text, align)| {
                let class = match (align, color(text)) {
                    (Align::Right, _) => " class=\"number\"".to_owned(),
                    (Align::Left, Some(color)) => format!(" class=\"long {color}\""),
                    (Align::Left, None) if text.chars().count() > LONG => " class=\"long\"".to_owned(),
                    (Align::Left, None) => String::new(),
                };
                format!("<{tag}{class}>{}</{tag}>", escape(text))
            })
            .collect()
    };
    let head = cells("th", &mut table.columns().iter().map(|(name, _)| name));
    let rows: String =
        table.rows().iter().map(|row| format!("<tr>{}</tr>\n", cells("td", &mut row.iter()))).collect();
    format!(
        "<div class=\"wide\"><table>\n<caption>{}</caption>\n<thead><tr>{head}</tr></thead>\n\
         <tbody>\n{rows}</tbody>\n</table></div>\n",
        escape(&table.caption)
    )
}

/// The color of a verdict, with or without its reason.
fn color(text: &str) -> Option<&'static str> {
    let is_it = |verdict: &Verdict| {
        text.strip_prefix(verdict.name()).is_some_and(|rest| rest.is_empty() || rest.starts_with(" ("))
    };
    Verdict::ALL.into_iter().find(is_it).map(|verdict| match verdict {
        Verdict::Reproduced => "good",
        Verdict::Differs => "bad",
        Verdict::NotRun => "open",
    })
}

/// Longer cells take several lines, so that the columns behind them stay in sight.
const LONG: usize = 24;

const PAGE_STYLE: &str = "\
:root{color-scheme:light dark}
body{margin:0;background:#fff;color:#24292f;font:16px/1.55 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}
main{max-width:1120px;margin:0 auto;padding:2.5rem 1.25rem 4rem}
h1{font-size:1.75rem;line-height:1.2;margin:0 0 .5rem}
h2{font-size:1.2rem;margin:2.5rem 0 .75rem;padding-top:1rem;border-top:1px solid #e3e7eb}
.lead{color:#59636e;font-size:1.05rem;margin:0 0 1.5rem}
figure{margin:1.5rem 0;max-width:720px}
p,li{max-width:720px}
figcaption,caption{color:#59636e;font-size:.875rem;text-align:left}
caption{padding:0 0 .5rem}
.wide{overflow-x:auto;margin:1.25rem 0}
table{border-collapse:collapse;font-size:.8125rem;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:.28rem .5rem;text-align:left;border-bottom:1px solid #e3e7eb;white-space:nowrap}
th{font-weight:600;border-bottom:1px solid #8c959f}
.number{text-align:right}
.long{white-space:normal;min-width:9rem}
.good{color:#1a7f37}.bad{color:#bc4c00}.open{color:#6e7781}
tbody tr:hover{background:#f4f6f8}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.3rem 1.25rem;font-size:.875rem;margin:0}
dt{color:#59636e}
dd{margin:0;overflow-wrap:anywhere}
li{margin:.3rem 0}
@media (prefers-color-scheme:dark){
body{background:#12161c;color:#e6edf3}
h2,th,td{border-color:#262d36}
th{border-bottom-color:#6e7681}
.lead,figcaption,caption,dt{color:#9da7b1}
.good{color:#3fb950}.bad{color:#f0883e}.open{color:#8b949e}
tbody tr:hover{background:#1a2028}
}
@media print{h2{break-after:avoid}figure,tr{break-inside:avoid}}
";

#[cfg(test)]
mod tests {
    use super::*;

    const NASTY: &str = "<script>alert('x')</script>&\"";

    fn report() -> Report {
        let origin = Origin {
            machine: Machine::unknown(),
            commit: "abc1234".into(),
            command: format!("thalweg lab models {NASTY}"),
            input: NASTY.into(),
            measured_at: "2026-01-02 03:04:05 UTC".into(),
        };
        let mut report = Report::new(NASTY, NASTY, origin);
        report.heading(NASTY);
        report.paragraph(NASTY);
        let mut table = Table::new(NASTY, [(NASTY, Align::Left), ("n", Align::Right)]);
        table.push([NASTY.to_owned(), "1".to_owned()]);
        report.table(table);
        report.plot("<svg></svg>\n".into(), NASTY);
        report.notes([NASTY]);
        report
    }

    #[test]
    fn every_text_is_escaped() {
        let html = report().html();
        assert!(!html.contains("<script"), "{html}");
        let escaped = html.matches("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;&quot;").count();
        assert_eq!(
            escaped, 12,
            "title twice, lead, heading, paragraph, table thrice, caption, note, input, command"
        );
    }

    #[test]
    fn a_report_needs_nothing_but_itself() {
        let html = report().html();
        for outside in ["http:", "https:", "src=", "href=", "url(", "@import", "<link", "<script"] {
            assert!(!html.contains(outside), "{outside}");
        }
    }

    #[test]
    fn origin_is_always_named() {
        let html = report().html();
        for fact in ["<dt>Processor</dt><dd>unknown</dd>", "<dt>Commit</dt><dd>abc1234</dd>", "2026-01-02"] {
            assert!(html.contains(fact), "{fact}");
        }
    }

    #[test]
    fn page_and_numbers_are_written_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a/b");
        let page = report().write(&target, &vec![1.5, 2.5]).unwrap();
        assert!(std::fs::read_to_string(page).unwrap().starts_with("<!DOCTYPE html>"));
        let json = std::fs::read_to_string(target.join("results.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["results"], serde_json::json!([1.5, 2.5]));
        assert_eq!(json["origin"]["commit"], "abc1234");
        assert_eq!(std::fs::read_dir(&target).unwrap().count(), 2);
    }

    #[test]
    fn a_folder_that_cannot_be_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        let error = report().write(&folder.path().join("file/sub"), &()).unwrap_err();
        assert!(error.to_string().contains("file/sub"), "{error}");
    }
}
