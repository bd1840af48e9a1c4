//! One page of a headless Chromium, driven by its debugging pipe: messages of JSON that end with a zero byte.

use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::process::{Child, Command};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Names that Chromium has in distributions.
const PROGRAMS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// The page is asked to give up waiting after this many milliseconds: a test that hangs says nothing.
const PATIENCE_MS: u32 = 60_000;

pub(super) struct Browser {
    child: Child,
    to: PipeWriter,
    from: BufReader<PipeReader>,
    next: u64,
    session: Option<String>,
    errors: Vec<String>,
    _profile: TempDir,
}

impl Browser {
    /// Starts a browser with an empty page; `None` if there is none.
    pub(super) fn start() -> Option<Self> {
        Self::start_by(Command::new("sh"))
    }

    /// Starts it by this shell, which may run elsewhere.
    pub(super) fn start_by(shell: Command) -> Option<Self> {
        let found = PROGRAMS.into_iter().find(|name| Command::new(name).arg("--version").output().is_ok());
        let Some(program) = found else {
            thalweg_testdata::skipped("the console: no Chromium (Debian: chromium)");
            return None;
        };
        let profile = TempDir::new().expect("a folder");
        let (child, to, from) = spawn(shell, program, &profile).expect("a browser");
        let from = BufReader::new(from);
        let mut browser =
            Self { child, to, from, next: 0, session: None, errors: Vec::new(), _profile: profile };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", attach);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Sends a command and returns its result. Events that come before are remembered if they are errors.
    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.next += 1;
        let mut message = json!({ "id": self.next, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{message}\0").as_bytes()).expect("the browser's pipe");
        loop {
            let mut answer = Vec::new();
            self.from.read_until(0, &mut answer).expect("the browser's pipe");
            let answer: Value =
                serde_json::from_slice(answer.strip_suffix(&[0]).expect("a browser that lives"))
                    .expect("a message of JSON");
            if answer["id"] == json!(self.next) {
                assert!(answer.get("error").is_none(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
            self.errors.extend(error_of(&answer));
        }
    }

    pub(super) fn navigate(&mut self, address: &str) {
        self.call("Page.navigate", json!({ "url": address }));
    }

    /// The theme that the reader's system has, and the width of the window.
    pub(super) fn look(&mut self, theme: &str, width: u32) {
        let features = json!([{ "name": "prefers-color-scheme", "value": theme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
        let metrics = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
    }

    /// The value of an expression in the page. A promise is awaited.
    pub(super) fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let result = self.call("Runtime.evaluate", parameters);
        assert!(result.get("exceptionDetails").is_none(), "{expression}: {}", result["exceptionDetails"]);
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub(super) fn until(&mut self, condition: &str) {
        let waits = format!(
            "new Promise((resolve) => {{ const begin = Date.now(); const look = () => {{ if ({condition}) resolve(''); \
             else if (Date.now() - begin > {PATIENCE_MS}) resolve(document.body.innerText || 'an empty page'); \
             else setTimeout(look, 20); }}; look(); }})"
        );
        let seen = self.evaluate(&waits);
        assert_eq!(seen, json!(""), "never: {condition}; errors: {:?}", self.errors);
    }

    /// Presses keys one after another; `\r` is Enter.
    pub(super) fn keys(&mut self, keys: &str) {
        for key in keys.chars() {
            let name = if key == '\r' { "Enter".to_owned() } else { key.to_string() };
            let code = if key == '\r' { 13 } else { 0 };
            let press = json!({ "type": "keyDown", "key": name, "text": key.to_string(), "windowsVirtualKeyCode": code });
            self.call("Input.dispatchKeyEvent", press);
            self.call("Input.dispatchKeyEvent", json!({ "type": "keyUp", "key": name }));
        }
    }

    /// Errors of the page since the last call.
    pub(super) fn errors(&mut self) -> Vec<String> {
        // What happened before this answer has been heard.
        self.evaluate("0");
        std::mem::take(&mut self.errors)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the program with its debugging pipe, which is at descriptors 3 and 4: a shell puts it there.
fn spawn(
    mut shell: Command,
    program: &str,
    profile: &TempDir,
) -> io::Result<(Child, PipeWriter, PipeReader)> {
    let (input, to) = io::pipe()?;
    let (from, output) = io::pipe()?;
    let child = shell
        .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", program])
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--hide-scrollbars",
            "--remote-debugging-pipe",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .stdin(input)
        .stdout(output)
        .spawn()?;
    Ok((child, to, from))
}

/// What an event says went wrong: an exception, an error on the console, something that the policy refused.
fn error_of(event: &Value) -> Option<String> {
    let parameters = &event["params"];
    match event["method"].as_str()? {
        "Runtime.exceptionThrown" => Some(parameters["exceptionDetails"].to_string()),
        "Runtime.consoleAPICalled" if parameters["type"] == "error" => Some(parameters["args"].to_string()),
        "Log.entryAdded" if parameters["entry"]["level"] == "error" => Some(parameters["entry"].to_string()),
        _ => None,
    }
}
