//! A server that is started in another way than its recipe says.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use super::Recipe;
use crate::Result;

/// The server of a recipe, with a change of the command that starts it.
pub(super) struct Changed<R, F> {
    recipe: R,
    change: F,
}

impl<R, F> Changed<R, F>
where
    R: Recipe,
    F: Fn(&Path, Command) -> Result<Command> + Send + Sync + 'static,
{
    /// `change` gets the server's folder and the command of the recipe.
    pub(super) fn new(recipe: R, change: F) -> Self {
        Self { recipe, change }
    }
}

impl<R, F> Recipe for Changed<R, F>
where
    R: Recipe,
    F: Fn(&Path, Command) -> Result<Command> + Send + Sync + 'static,
{
    fn name(&self) -> &'static str {
        self.recipe.name()
    }

    fn refuses_root(&self) -> bool {
        self.recipe.refuses_root()
    }

    fn end_signal(&self) -> Signal {
        self.recipe.end_signal()
    }

    fn prepare(&self, folder: &Path) -> Result<()> {
        self.recipe.prepare(folder)
    }

    fn command(&self, folder: &Path, port: u16) -> Result<Command> {
        (self.change)(folder, self.recipe.command(folder, port)?)
    }

    fn ask(&self, addr: SocketAddr, request: &str) -> io::Result<String> {
        self.recipe.ask(addr, request)
    }

    fn check(&self, addr: SocketAddr) -> io::Result<()> {
        self.recipe.check(addr)
    }

    fn url(&self, port: u16) -> String {
        self.recipe.url(port)
    }
}
