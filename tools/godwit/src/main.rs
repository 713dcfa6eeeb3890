//! The Godwit command line. `commands/` contains one file per command.
//!
//! The exit code is 0 for success, 2 for an error that the user can fix, and 1 for a bug or for
//! packets that were not conserved. Each error is reported in one sentence.
#![forbid(unsafe_code)]

mod builtin;
mod commands;
mod control;
mod devices;
mod events;
mod failure;
mod location;
mod log;
mod output;
mod privileges;
mod progress;
#[cfg(feature = "tls")]
mod proxies;
mod runtime;
mod screen;
mod secret;
mod signals;
mod summary;
mod supervisor;
mod table;
mod trace;

use std::error::Error;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser, Subcommand};

use failure::Failure;

/// A network-function dataplane for machines with more than one kind of processor.
#[derive(Parser)]
#[command(name = "godwit", version, disable_help_subcommand = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(commands::demo::Arguments),
    Run(commands::run::Arguments),
    Replay(commands::replay::Arguments),
    #[cfg(feature = "tls")]
    Proxy(commands::proxy::Arguments),
    #[cfg(feature = "tls")]
    Signer(commands::signer::Arguments),
    Check(commands::check::Arguments),
    Devices(commands::devices::Arguments),
    Profile(commands::profile::Arguments),
    Bench(commands::bench::Arguments),
    Generate(commands::generate::Arguments),
    Status(commands::status::Arguments),
    Stop(commands::stop::Arguments),
    Trace(commands::trace::Arguments),
    Sa(commands::sa::Arguments),
    Name(commands::name::Arguments),
    Route(commands::route::Arguments),
    Chain(commands::chain::Arguments),
    Reload(commands::reload::Arguments),
    Policy(commands::policy::Arguments),
    Mac(commands::mac::Arguments),
    Rules(commands::rules::Arguments),
    Function(commands::function::Arguments),
    NewFunction(commands::new_function::Arguments),
    Test(commands::test::Arguments),
    Build(commands::build::Arguments),
    Completion(commands::completion::Arguments),
    Man(commands::man::Arguments),
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(log::Event::default)
        .with_max_level(tracing_subscriber::filter::LevelFilter::INFO)
        .event_format(events::Format)
        .init();
    let outcome = match CommandLine::try_parse() {
        Ok(CommandLine { command }) => match command {
            Command::Demo(arguments) => commands::demo::execute(&arguments),
            Command::Run(arguments) => commands::run::execute(&arguments),
            Command::Replay(arguments) => commands::replay::execute(&arguments),
            #[cfg(feature = "tls")]
            Command::Proxy(arguments) => commands::proxy::execute(&arguments),
            #[cfg(feature = "tls")]
            Command::Signer(arguments) => commands::signer::execute(&arguments),
            Command::Check(arguments) => commands::check::execute(&arguments),
            Command::Devices(arguments) => commands::devices::execute(&arguments),
            Command::Profile(arguments) => commands::profile::execute(&arguments),
            Command::Bench(arguments) => commands::bench::execute(&arguments),
            Command::Generate(arguments) => commands::generate::execute(&arguments),
            Command::Status(arguments) => commands::status::execute(&arguments),
            Command::Stop(arguments) => commands::stop::execute(&arguments),
            Command::Trace(arguments) => commands::trace::execute(&arguments),
            Command::Sa(arguments) => commands::sa::execute(&arguments),
            Command::Name(arguments) => commands::name::execute(&arguments),
            Command::Route(arguments) => commands::route::execute(&arguments),
            Command::Chain(arguments) => commands::chain::execute(&arguments),
            Command::Reload(arguments) => commands::reload::execute(&arguments),
            Command::Policy(arguments) => commands::policy::execute(&arguments),
            Command::Mac(arguments) => commands::mac::execute(&arguments),
            Command::Rules(arguments) => commands::rules::execute(&arguments),
            Command::Function(arguments) => commands::function::execute(&arguments),
            Command::NewFunction(arguments) => commands::new_function::execute(&arguments),
            Command::Test(arguments) => commands::test::execute(&arguments),
            Command::Build(arguments) => commands::build::execute(&arguments),
            Command::Completion(arguments) => commands::completion::execute(&arguments, CommandLine::command()),
            Command::Man(arguments) => commands::man::execute(&arguments, CommandLine::command()),
        },
        Err(error) if error.use_stderr() => Err(usage(&error)),
        Err(help) => output::print(&format!("{}\n", help.to_string().trim_end())),
    };
    let code = match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    };
    log::flush();
    code
}

/// Converts an error of the command line to one sentence.
fn usage(error: &clap::Error) -> Failure {
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Failure::User("no command: `godwit --help` lists them".to_owned());
    }
    if error.kind() == clap::error::ErrorKind::ValueValidation
        && let (Some(ContextValue::String(argument)), Some(source)) =
            (error.get(ContextKind::InvalidArg), error.source())
    {
        return Failure::User(format!("{argument}: {source}"));
    }
    let text = error.to_string();
    let text = ["\n\nUsage:", "\n\nFor more information", "\n\n  tip:"]
        .iter()
        .fold(text.as_str(), |text, end| text.split(end).next().unwrap_or(text));
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut sentence = words.join(" ");
    let similar = [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    match similar.into_iter().find_map(|kind| error.get(kind)) {
        Some(ContextValue::String(name)) => sentence += &format!("; did you mean `{name}`?"),
        Some(ContextValue::Strings(names)) => sentence += &format!("; did you mean `{}`?", names.join("`, `")),
        _ => {}
    }
    Failure::User(sentence.strip_prefix("error: ").unwrap_or(&sentence).to_owned())
}
