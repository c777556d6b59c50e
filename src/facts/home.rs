//! The user's home directory. There may be two: NCCL before 2.30 looks it up in the user database
//! (`getpwuid`), later releases in the environment.

use serde::{Deserialize, Serialize};

use super::environment::Environment;
use super::reader::Reader;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Homes {
    /// The value of `HOME`.
    pub variable: Option<String>,
    /// The home directory of the real user id in `/etc/passwd`. Only the image's own libc can query other
    /// databases, such as LDAP.
    pub database: Option<String>,
}

pub(crate) fn read(reader: &Reader, environment: &Environment) -> Homes {
    let uid = nix::unistd::getuid().to_string();
    let passwd = reader.text_if_readable("/etc/passwd").unwrap_or_default();
    Homes { variable: environment.get("HOME").map(str::to_owned), database: of_user(&passwd, &uid) }
}

/// Returns the home directory in `name:password:uid:gid:comment:home:shell`. If a user has several lines, the
/// first one counts.
fn of_user(passwd: &str, uid: &str) -> Option<String> {
    let line = passwd
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields.get(2) == Some(&uid))?;
    line.get(5).map(|home| (*home).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_home_folder_is_that_of_the_user_id() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\nbroken\njob:x:1000:1000::/home/job:\nagain:x:1000:1::/x:\n";
        assert_eq!(of_user(passwd, "0").as_deref(), Some("/root"));
        assert_eq!(of_user(passwd, "1000").as_deref(), Some("/home/job"));
        assert_eq!(of_user(passwd, "7"), None);
        assert_eq!(of_user("", "0"), None);
    }
}
