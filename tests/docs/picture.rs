//! Makes `docs/report.svg`: the report of a demo host as a picture of a terminal, for the README.

use std::fmt::Write;

use super::{printed, written};

const COMMAND: &[&str] = &["plan", "--facts", "demo:cce-roce"];

/// Sizes in units of the picture. A character of a monospace font is about 0.6 of the font size wide; in
/// some fonts, it is slightly wider.
const SIZE: f64 = 13.0;
const COLUMN: f64 = SIZE * 0.62;
const LINE: f64 = 19.0;
const MARGIN: f64 = 16.0;
/// The height of the bar above the first line.
const BAR: f64 = 26.0;

/// The window has its own background, so it is readable on a light page and on a dark one.
const STYLE: &str = "\
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; \
fill: #d7dee6; white-space: pre }
.window { fill: #1b2129; stroke: #5c6773 }
.prompt { fill: #8b96a3 }
.headline { fill: #ffffff; font-weight: bold }
.use, .set { fill: #7ee083 }
.skip { fill: #8b96a3 }
.NCCL { fill: #7cc7ff }
.limit { fill: #f2cc60 }
";

/// The first words of a report's lines that have their own color.
const WORDS: &[&str] = &["use", "skip", "set", "NCCL", "limit"];

fn picture(command: &str, report: &str) -> String {
    let lines: Vec<&str> = report.lines().collect();
    let columns = lines.iter().map(|line| line.chars().count()).max().unwrap_or_default();
    let width = (columns as f64 * COLUMN + 2.0 * MARGIN).ceil();
    let height = (lines.len() as f64 + 1.0) * LINE + BAR + MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n\
         <rect class=\"window\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n",
        escaped(command),
        width - 1.0,
        height - 1.0
    );
    for (number, colour) in ["#ff5f57", "#febc2e", "#28c840"].iter().enumerate() {
        writeln!(svg, "<circle cx=\"{}\" cy=\"16\" r=\"5\" fill=\"{colour}\"/>", 18 + 18 * number).unwrap();
    }
    text(&mut svg, 0, &format!("<tspan class=\"prompt\">$ {}</tspan>", escaped(command)));
    for (number, line) in lines.iter().enumerate() {
        text(&mut svg, number + 1, &coloured(line, number == 0));
    }
    svg.push_str("</svg>\n");
    svg
}

fn text(svg: &mut String, number: usize, content: &str) {
    let y = BAR + LINE * (number as f64 + 1.0);
    writeln!(svg, "<text x=\"{MARGIN}\" y=\"{y}\" xml:space=\"preserve\">{content}</text>").unwrap();
}

fn coloured(line: &str, is_headline: bool) -> String {
    if is_headline {
        return format!("<tspan class=\"headline\">{}</tspan>", escaped(line));
    }
    let word = line.split_whitespace().next().unwrap_or_default();
    let Some(word) = WORDS.iter().find(|known| **known == word) else { return escaped(line) };
    let (indent, rest) = line.split_once(word).unwrap_or(("", line));
    match *word {
        // A line about a skipped item is dimmed as a whole.
        "skip" => format!("{indent}<tspan class=\"skip\">{word}{}</tspan>", escaped(rest)),
        _ => format!("{indent}<tspan class=\"{word}\">{word}</tspan>{}", escaped(rest)),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[test]
fn the_picture_is_of_the_report_that_the_program_prints() {
    let command = format!("rdma-init {}", COMMAND.join(" "));
    written::check("docs/report.svg", &picture(&command, &printed(COMMAND)));
}

#[test]
fn what_means_something_in_xml_is_escaped() {
    let svg = picture("a", "rdma-init\n  set  X  <1>&2\n");
    assert!(svg.contains("<tspan class=\"set\">set</tspan>  X  &lt;1&gt;&amp;2</text>"), "{svg}");
}
