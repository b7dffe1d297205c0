//! What HTML reports have in common: one file with everything in it, readable on light and on dark.

pub mod chart;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use plotters::style::RGBColor;

use crate::site::Description;
use crate::table::{Sheet, css};
use tooling::machine::Machine;

const STYLE: &str = include_str!("report.css");

fn page(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { main { (body) } }
        }
    };
    page.into_string()
}

/// What a benchmark has measured: figures with what is said and drawn before them.
pub struct Report<'a> {
    pub title: String,
    pub heading: Markup,
    /// What it is about, in one line or more.
    pub about: Markup,
    /// What was found right after the runs.
    pub checked: Markup,
    pub plots: Markup,
    /// What the figures are.
    pub note: String,
    pub figures: Sheet,
    /// What is said after them.
    pub more: Markup,
    pub machine: &'a Machine,
    /// How it was run, in words.
    pub runs: String,
    pub servers: Vec<&'a Description>,
    /// What each client ran.
    pub scripts: String,
}

impl Report<'_> {
    pub fn render(&self) -> String {
        let body = html! {
            h1 { (self.heading) }
            (self.about)
            p { span.good { "✓ Data checked " } (self.checked) }
            (self.plots)
            h2 { "All figures" }
            p.soft { (self.note) }
            div.card.scroll { (self.figures.html()) }
            (self.more)
            (self.conditions())
        };
        page(&self.title, &body)
    }

    fn conditions(&self) -> Markup {
        html! {
            h2 { "How it was measured" }
            div.card {
                dl {
                    dt { "Machine" } dd { (self.machine.summary()) }
                    dt { "Time" } dd { (self.machine.time) }
                    dt { "Checkout" } dd { code { (self.machine.checkout) } }
                    dt { "Runs" } dd { (self.runs) }
                    @for server in &self.servers {
                        dt { (server.system) }
                        dd {
                            (server.version) " · "
                            @if let Some(build) = &server.build { "txn " code { (build) } " · " }
                            code {
                                @for (name, value) in &server.settings { (name) "=" (value) " " }
                            }
                        }
                    }
                    dt { "Each client" }
                    dd { pre { (self.scripts) } }
                }
            }
        }
    }
}

/// A plot with its title and what it shows.
pub fn figure(title: &str, about: &str, svg: &str) -> Markup {
    html! {
        figure.card {
            figcaption { (title) " " span { (about) } }
            (PreEscaped(svg))
        }
    }
}

/// A plot over the whole width.
pub fn wide_figure(title: &str, about: &str, svg: &str) -> Markup {
    html! {
        figure.card.wide style="margin-top:14px" {
            figcaption { (title) " " span { (about) } }
            (PreEscaped(svg))
        }
    }
}

/// Plots side by side.
pub fn row(figures: &[Markup]) -> Markup {
    html! { div.row style="margin-top:14px" { @for figure in figures { (figure) } } }
}

pub fn legend(entries: impl IntoIterator<Item = (&'static str, RGBColor)>) -> Markup {
    html! {
        div.legend {
            @for (name, color) in entries {
                span { i style={ "background:" (css(color)) } {} (name) }
            }
        }
    }
}
