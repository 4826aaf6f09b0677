//! A history as a picture: a line for each call, what it believed, and what went wrong.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::check::Violation;
use crate::history::{Event, History, What, seconds};

const WIDTH: u64 = 1200;
const LEFT: u64 = 190;
const LINE: u64 = 22;

/// Draws a history as SVG. The calls of the first violation are red.
#[must_use]
pub fn draw(history: &History, violations: &[Violation]) -> String {
    let first = violations.first();
    // Events long after the violation explain nothing.
    let last = history.events.last().map_or(1, |event| event.at);
    let end = first.map_or(last, |first| (first.at + first.at / 4).min(last)).max(1);
    let mut picture = Picture { text: String::new(), lines: BTreeMap::new(), end };
    let bad = first.map_or(&[][..], |violation| &violation.calls);
    let mut asked: BTreeMap<u32, u64> = BTreeMap::new();
    let mut beliefs: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for Event { at, process, call, what } in history.events.iter().filter(|event| event.at <= end) {
        let colour = if bad.contains(call) { "#c22" } else { "#27a" };
        match what {
            What::Asks { key, .. } => {
                picture.line(*call, format!("process {process}, call {call}, key {key}"));
                asked.insert(*call, *at);
            }
            What::Begins { token } => {
                let from = asked.remove(call).unwrap_or(*at);
                picture.bar(*call, (from, *at), "#ccc", 3, "waits");
                picture.mark(*call, *at, colour, &token.map_or_else(String::new, |token| format!("token {token}")));
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
            What::Forgets { .. } => picture.band(*at, *at, "#c22", "the store forgets its locks"),
            What::ShutsDown => picture.band(*at, *at, "#555", &format!("process {process} shuts down")),
            What::Calm => picture.band(*at, *at, "#393", "from here on nothing goes wrong"),
            What::Left(what) => picture.band(*at, *at, "#c22", what),
            What::Note(what) if *process == 0 => picture.band(*at, *at, "#a6a", what),
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
