//! A history as a picture: a line for each call, what it believed, and what went wrong.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::check::Violation;
use crate::history::{Event, History, Step, What, seconds};

const WIDTH: u64 = 1200;
const LEFT: u64 = 190;
const LINE: u64 = 22;
/// The line of the store.
const STORE: u64 = 26;

/// Before the text of a fault, in the note of its end.
const END_OF: &str = "end of: ";

/// Draws a history as SVG. The calls of the first violation are red.
#[must_use]
pub fn draw(history: &History, violations: &[Violation]) -> String {
    let first = violations.first();
    // Events long after the violation explain nothing.
    let last = history.events.last().map_or(1, |event| event.at);
    let end = first.map_or(last, |first| (first.at + first.at / 4).min(last)).max(1);
    let mut picture = Picture { text: String::new(), requests: BTreeMap::new(), lines: BTreeMap::new(), end };
    let bad = first.map_or(&[][..], |violation| &violation.calls);
    let mut asked: BTreeMap<u32, u64> = BTreeMap::new();
    let mut beliefs: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for Event { at, process, call, what } in history.events.iter().filter(|event| event.at <= end) {
        let colour = if bad.contains(call) { "#c22" } else { "#27a" };
        match what {
            What::Asks { keys, .. } => {
                picture.line(*call, format!("process {process}, call {call}, key {keys:?}"));
                asked.insert(*call, *at);
            }
            What::Begins { holds } => {
                let from = asked.remove(call).unwrap_or(*at);
                picture.bar(*call, (from, *at), "#ccc", 3, "waits");
                picture.mark(*call, *at, colour, &format!("{holds:?}"));
            }
            What::Acts { until } | What::Believes { until } => {
                if let Some((from, to)) = beliefs.insert(*call, (*at, *until)) {
                    picture.bar(*call, (from, to.min(*at)), colour, 9, "believes");
                }
            }
            What::Writes { read, wrote } => picture.mark(*call, *at, colour, &format!("reads {read}, writes {wrote}")),
            What::Ends(how) => {
                if let Some((from, to)) = beliefs.remove(call) {
                    picture.bar(*call, (from, to.min(*at)), colour, 9, "believes");
                }
                picture.mark(*call, *at, "#333", &format!("{how:?}"));
            }
            What::Answers(answer) => {
                let from = asked.remove(call).unwrap_or(*at);
                picture.bar(*call, (from, *at), "#ccc", 3, "waits");
                picture.mark(*call, *at, "#333", &answer.map_or_else(|why| format!("{why:?}"), |()| "Ok".into()));
            }
            What::GivenUp => picture.mark(*call, *at, "#333", "given up"),
            What::Stands { until } if *call > 0 => picture.bar(*call, (*at, *until), "#e80", 3, "is not polled"),
            What::Stands { until } => picture.band(*at, *until, "#e80", &format!("process {process} stands still")),
            What::Restarts { time, .. } => picture.band(*at, at + time, "#a6a", "the server is down"),
            What::Forgets { key: None, .. } => picture.band(*at, *at, "#c22", "the store forgets its locks"),
            What::Forgets { key: Some(key), from, .. } => {
                picture.band(*at, *at, "#c22", &format!("the session of key {key}, token {from}, ends"));
            }
            What::Queues { .. }
            | What::Faultless
            | What::Grants { .. }
            | What::EndIsTold { .. }
            | What::Keeps { .. }
            | What::EndsRun { .. }
            | What::Settles { .. } => {}
            What::ShutsDown => picture.band(*at, *at, "#555", &format!("process {process} shuts down")),
            What::Calm => picture.band(*at, *at, "#393", "from here on nothing goes wrong"),
            What::Left(what) => picture.band(*at, *at, "#c22", what),
            What::Request { number, name, step } => picture.request(*call, *number, name, *step, *at),
            What::Note(what) if *process == 0 && !what.starts_with(END_OF) => {
                let is_end = |event: &&Event| {
                    matches!(&event.what, What::Note(end) if end.strip_prefix(END_OF) == Some(what)) && event.at >= *at
                };
                let to = history.events.iter().find(is_end).map_or(*at, |event| event.at);
                picture.band(*at, to, "#a6a", what);
            }
            What::Note(_) => {}
        }
    }
    for (call, (from, to)) in beliefs {
        picture.bar(call, (from, to.min(end)), if bad.contains(&call) { "#c22" } else { "#27a" }, 9, "believes");
    }
    let title = first.map_or_else(|| "no promise is broken".to_owned(), ToString::to_string);
    if let Some(violation) = first {
        picture.band(violation.at, violation.at, "#c22", &title);
    }
    picture.whole(&title)
}

struct Picture {
    text: String,
    /// Where the requests are that are on their way: by number, the call and when it was last seen.
    requests: BTreeMap<u64, u64>,
    /// The lines of the calls, by their numbers.
    lines: BTreeMap<u32, u64>,
    end: u64,
}

impl Picture {
    fn x(&self, at: u64) -> u64 {
        LEFT + (u128::from(at.min(self.end)) * u128::from(WIDTH - LEFT - 20) / u128::from(self.end)) as u64
    }

    fn y(&self, call: u32) -> u64 {
        40 + self.lines.get(&call).copied().unwrap_or(0) * LINE
    }

    fn line(&mut self, call: u32, name: String) {
        let next = self.lines.len() as u64;
        self.lines.entry(call).or_insert(next);
        let y = self.y(call);
        let _ = writeln!(self.text, "<text x=\"6\" y=\"{}\">{name}</text>", y + 4);
    }

    fn bar(&mut self, call: u32, (from, to): (u64, u64), colour: &str, height: u64, what: &str) {
        if !self.lines.contains_key(&call) || to < from {
            return;
        }
        let (x, y) = (self.x(from), self.y(call) - height / 2);
        let width = (self.x(to) - x).max(1);
        let title = format!("{what}: {} to {} s", seconds(from), seconds(to));
        let _ = writeln!(
            self.text,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{colour}\"><title>{title}</title></rect>"
        );
    }

    /// A request of a call and its answer: an arrow to the store, which is the line at the top, and one back.
    fn request(&mut self, call: u32, number: u64, name: &str, step: Step, at: u64) {
        let seen = self.requests.insert(number, at).unwrap_or(at);
        if !self.lines.contains_key(&call) {
            return;
        }
        let (line, half) = (self.y(call), self.y(call).midpoint(STORE));
        let (from, to, colour) = match step {
            Step::Sent => return,
            Step::Arrives | Step::ArrivesFirst => (line, STORE, "#999"),
            Step::Answered => (STORE, line, "#999"),
            Step::Lost => (line, half, "#c60"),
            Step::AnswerLost => (STORE, half, "#c60"),
        };
        let title = format!("{name} {number}: {} to {} s, {step:?}", seconds(seen), seconds(at));
        let _ = writeln!(
            self.text,
            "<line x1=\"{}\" y1=\"{from}\" x2=\"{}\" y2=\"{to}\" stroke=\"{colour}\" marker-end=\"url(#arrow)\"><title>{title}</title></line>",
            self.x(seen),
            self.x(at)
        );
    }

    fn mark(&mut self, call: u32, at: u64, colour: &str, what: &str) {
        let (x, y) = (self.x(at), self.y(call));
        let title = format!("{what}: {} s", seconds(at));
        let _ = writeln!(
            self.text,
            "<circle cx=\"{x}\" cy=\"{y}\" r=\"4\" fill=\"{colour}\"><title>{title}</title></circle>"
        );
    }

    /// Over all lines.
    fn band(&mut self, from: u64, to: u64, colour: &str, what: &str) {
        let x = self.x(from);
        let width = (self.x(to) - x).max(1);
        let title = format!("{}: {} s", escaped(what), seconds(from));
        let _ = writeln!(
            self.text,
            "<rect x=\"{x}\" y=\"28\" width=\"{width}\" height=\"100%\" fill=\"{colour}\" opacity=\"0.35\"><title>{title}</title></rect>"
        );
    }

    fn whole(self, title: &str) -> String {
        let height = 60 + self.lines.len() as u64 * LINE;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
             <defs><marker id=\"arrow\" viewBox=\"0 0 6 6\" refX=\"6\" refY=\"3\" markerWidth=\"6\" markerHeight=\"6\" orient=\"auto\">\
             <path d=\"M0 0 6 3 0 6z\" fill=\"#999\"/></marker></defs>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n<text x=\"6\" y=\"16\" font-size=\"13\">{}; 0 to {} s</text>\n{}</svg>\n",
            escaped(title),
            seconds(self.end),
            self.text
        )
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
