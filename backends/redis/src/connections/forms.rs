//! The forms in which programs keep locks in one server. Under the same key another form, or another database, is
//! another lock, so each program notes its form, and a readiness probe reports the other ones.

use std::sync::Arc;

use ::redis::{Cmd, Value};
use dlock_contract::Result;

use crate::connections::pool::Connections;
use crate::reply::read::text;
use crate::scripts::call::call;
use crate::scripts::lua::Lua;
use crate::url::settings::Layout;

/// The forms that were used in this database within the last day: a hash of form and time in seconds.
const FORMS: &str = "dl1:forms";

/// [`FORMS`]; the form, the number of the database. Gives database and form of all others. An account may be without a
/// command of it, and then it finds less.
const NOTE: &str = r"
local now=tonumber(redis.call('TIME')[1])
local db,found=tonumber(ARGV[2]),{}
local function look(n)
  local forms=redis.pcall('HGETALL',KEYS[1])
  for i=1,#forms,2 do
    if now-tonumber(forms[i+1])<86400 and (n~=db or forms[i]~=ARGV[1]) then
      table.insert(found,tostring(n))
      table.insert(found,forms[i])
    end
  end
end
redis.pcall('HSET',KEYS[1],ARGV[1],now)
redis.pcall('PEXPIRE',KEYS[1],'86400000')
look(db)
for n=0,15 do
  if n~=db then
    local selected=redis.pcall('SELECT',n)
    if type(selected)=='table' and selected.err then break end
    look(n)
  end
end
redis.pcall('SELECT',db)
return found
";

impl Connections {
    /// The form of this program's locks.
    pub(crate) fn form(&self) -> &'static str {
        match self.target.settings.layout {
            Layout::Own => "without keys=literal",
            Layout::Literal => "with keys=literal",
            Layout::Redisson => "with layout=redisson",
        }
    }

    /// Notes the form of this program's locks, and reports the other forms that were used lately.
    pub async fn note_form(self: &Arc<Self>, form: &str) -> Result<Vec<String>> {
        let (shared, db) = (self.here().await?, self.target.db());
        let note = call(&Lua::new(&[NOTE]).on(None), true, &|command: &mut Cmd| {
            command.arg(1).arg(FORMS).arg(form).arg(db);
        });
        let found = match self.bounded(self.command(&shared, note)).await? {
            Ok(Value::Array(found)) => found,
            // The server of the note's slot is down. The next readiness probe notes the form.
            Err(error) if error.is_retryable() && self.cluster().is_some() => return Ok(Vec::new()),
            answer => return answer.map(|_| Vec::new()),
        };
        let found = found.chunks_exact(2).filter_map(|pair| Some((text(&pair[0])?, text(&pair[1])?)));
        Ok(found
            .map(|(other, form)| match other == db.to_string() {
                true => format!("programs lock in this database {form} too: under the same key that is another lock"),
                false => format!(
                    "programs lock in database {other} of this server {form}: under the same key that is another lock"
                ),
            })
            .collect())
    }
}
