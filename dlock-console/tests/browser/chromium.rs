//! Chromium without a window, steered by its DevTools protocol: JSON texts over two pipes, each with a zero byte at its end.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use dlock_testkit::servers::find_program;
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) struct Chromium {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    last_id: u64,
    /// The reports that the pages have sent by themselves.
    events: Vec<Value>,
    _profile: TempDir,
}

/// One page of the browser.
#[derive(Clone, Debug)]
pub(crate) struct Tab {
    target: String,
    session: String,
}

impl Chromium {
    pub(crate) fn start() -> Self {
        let program = ["chromium-headless-shell", "chromium"].into_iter().find_map(find_program);
        let program = program.expect("no Chromium: `cargo xtask browser` installs it");
        let profile = TempDir::new().unwrap();
        // It reads from the file 3 and writes to the file 4. Its own words go nowhere.
        let mut command = Command::new("sh");
        command.args(["-c", r#"exec "$0" "$@" 3<&0 4>&1 >/dev/null 2>&1 </dev/null"#]).arg(program);
        command.args([
            "--headless",
            "--remote-debugging-pipe",
            "--no-first-run",
            "--disable-dev-shm-usage",
            "--disable-gpu",
        ]);
        // Its sandbox refuses root. It opens only our own page.
        command.arg("--no-sandbox").arg(format!("--user-data-dir={}", profile.path().display()));
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, from) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        Self { process, to, from, last_id: 0, events: Vec::new(), _profile: profile }
    }

    /// Opens an address in a page of this size.
    pub(crate) fn open(&mut self, url: &str, (width, height): (u32, u32), is_dark: bool) -> Tab {
        let target = self.call(None, "Target.createTarget", json!({ "url": "about:blank" }));
        let target = target["targetId"].as_str().unwrap().to_owned();
        let attached = self.call(None, "Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
        let tab = Tab { target, session: attached["sessionId"].as_str().unwrap().to_owned() };
        for domain in ["Page", "Runtime", "Log"] {
            self.ask(&tab, &format!("{domain}.enable"), json!({}));
        }
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.ask(&tab, "Emulation.setDeviceMetricsOverride", size);
        let scheme = if is_dark { "dark" } else { "light" };
        let feature = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.ask(&tab, "Emulation.setEmulatedMedia", json!({ "features": feature }));
        self.ask(&tab, "Page.navigate", json!({ "url": url }));
        tab
    }

    pub(crate) fn close(&mut self, tab: Tab) {
        self.call(None, "Target.closeTarget", json!({ "targetId": tab.target }));
    }

    /// The value of an expression in the page.
    pub(crate) fn value(&mut self, tab: &Tab, expression: &str) -> Value {
        self.evaluate(tab, expression).unwrap_or_else(|fault| panic!("{expression}: {fault}"))
    }

    fn evaluate(&mut self, tab: &Tab, expression: &str) -> Result<Value, Value> {
        let answer = self.ask(tab, "Runtime.evaluate", json!({ "expression": expression, "returnByValue": true }));
        if answer["exceptionDetails"].is_null() { Ok(answer["result"]["value"].clone()) } else { Err(answer) }
    }

    /// Waits until an expression is true. A page that is not loaded yet lacks what it names.
    pub(crate) fn until(&mut self, tab: &Tab, expression: &str) {
        let started = Instant::now();
        while self.evaluate(tab, expression) != Ok(Value::Bool(true)) {
            if started.elapsed() > Duration::from_secs(60) {
                let text = self.value(tab, "document.body.innerText");
                panic!(
                    "not within a minute: {expression}\n{}\n{:?}",
                    text.as_str().unwrap_or_default(),
                    self.complaints()
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Types a text, as a keyboard does.
    pub(crate) fn write(&mut self, tab: &Tab, text: &str) {
        self.ask(tab, "Input.insertText", json!({ "text": text }));
    }

    /// Presses a key: `Enter`, `Tab`, or a character.
    pub(crate) fn press(&mut self, tab: &Tab, key: &str) {
        let (code, text) = match key {
            "Enter" => (13, "\r"),
            "Tab" => (9, ""),
            text => (0, text),
        };
        let down = if text.is_empty() { "rawKeyDown" } else { "keyDown" };
        for (kind, text) in [(down, text), ("keyUp", "")] {
            let event = json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text });
            self.ask(tab, "Input.dispatchKeyEvent", event);
        }
    }

    /// The page as a picture, a PNG.
    pub(crate) fn picture(&mut self, tab: &Tab) -> Vec<u8> {
        let shot = self.ask(tab, "Page.captureScreenshot", json!({ "format": "png" }));
        base64::engine::general_purpose::STANDARD.decode(shot["data"].as_str().unwrap()).unwrap()
    }

    /// Dialogs that were opened, faults of scripts, and what the policy of the page has refused.
    pub(crate) fn complaints(&self) -> Vec<&Value> {
        let is_complaint = |event: &&Value| match event["method"].as_str().unwrap_or_default() {
            "Page.javascriptDialogOpening" | "Runtime.exceptionThrown" => true,
            "Log.entryAdded" => event["params"]["entry"]["source"] != "network",
            _ => false,
        };
        self.events.iter().filter(is_complaint).collect()
    }

    fn ask(&mut self, tab: &Tab, method: &str, parameters: Value) -> Value {
        self.call(Some(tab), method, parameters)
    }

    fn call(&mut self, tab: Option<&Tab>, method: &str, parameters: Value) -> Value {
        self.last_id += 1;
        let mut request = json!({ "id": self.last_id, "method": method, "params": parameters });
        if let Some(tab) = tab {
            request["sessionId"] = tab.session.clone().into();
        }
        self.to.write_all(format!("{request}\0").as_bytes()).unwrap();
        loop {
            let mut text = Vec::new();
            self.from.read_until(0, &mut text).unwrap();
            let told: Value = serde_json::from_slice(text.strip_suffix(&[0]).expect("Chromium has ended")).unwrap();
            if told["id"] != self.last_id {
                self.events.push(told);
                continue;
            }
            assert!(told["error"].is_null(), "{method}: {told}");
            return told["result"].clone();
        }
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
