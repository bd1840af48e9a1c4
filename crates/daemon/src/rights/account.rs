//! Users and groups of this host, and becoming one of them.
//!
//! They are read from `/etc/passwd` and `/etc/group`: a service's account is local.

use std::{fs, io};

use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities,
    set_keep_capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use super::RightsError;

const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

/// A user with its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) name: String,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Beside `gid`.
    pub(super) groups: Vec<u32>,
}

/// The user of this name.
pub(super) fn user(name: &str) -> Result<Account, RightsError> {
    find_user(&read(USERS)?, &read(GROUPS)?, name).ok_or_else(|| RightsError::NoUser(name.to_owned()))
}

/// The number of the group of this name.
pub(crate) fn group_number(name: &str) -> Result<u32, RightsError> {
    find_group(&read(GROUPS)?, name).ok_or_else(|| RightsError::NoGroup(name.to_owned()))
}

fn read(path: &'static str) -> Result<String, RightsError> {
    let text = fs::read(path).map_err(|error| RightsError::Accounts { path, error })?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// A line is `name:password:uid:gid:...`, of a group `name:password:gid:member,member`.
fn find_user(users: &str, groups: &str, name: &str) -> Option<Account> {
    let line = entry(users, name)?;
    let (uid, gid) = (line.get(2)?.parse().ok()?, line.get(3)?.parse().ok()?);
    let groups = groups.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let is_member = fields.get(3)?.split(',').any(|member| member == name);
        fields.get(2)?.parse().ok().filter(|_| is_member)
    });
    Some(Account { name: name.to_owned(), uid, gid, groups: groups.collect() })
}

fn find_group(groups: &str, name: &str) -> Option<u32> {
    entry(groups, name)?.get(2)?.parse().ok()
}

fn entry<'t>(text: &'t str, name: &str) -> Option<Vec<&'t str>> {
    let mut lines = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    lines.find(|line| line.first() == Some(&name))
}

impl Account {
    /// Whether the process runs as this user.
    pub(super) fn is_ours(&self) -> bool {
        rustix::process::geteuid().as_raw() == self.uid
    }

    /// Has the calling thread, the only one of its process, become this user with these capabilities.
    pub(super) fn become_with(&self, keep: CapabilitySet) -> io::Result<()> {
        for other in CapabilitySet::all().difference(keep).iter() {
            match remove_capability_from_bounding_set(other) {
                // A capability that this kernel does not have.
                Err(rustix::io::Errno::INVAL) => {}
                other => other?,
            }
        }
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        let groups: Vec<Gid> = self.groups.iter().map(|group| Gid::from_raw(*group)).collect();
        set_thread_groups(&groups)?;
        set_thread_res_gid(gid, gid, gid)?;
        set_keep_capabilities(true)?;
        set_thread_res_uid(uid, uid, uid)?;
        set_keep_capabilities(false)?;
        let sets = CapabilitySets { effective: keep, permitted: keep, inheritable: CapabilitySet::empty() };
        Ok(set_capabilities(None, sets)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_found_with_their_groups() {
        let users = "root:x:0:0:root:/root:/bin/sh\nthalweg:x:990:991::/:/usr/sbin/nologin\nbad:x:one:2::/:\nshort:x\n";
        let groups = "root:x:0:\nthalweg:x:991:\nnetops:x:50:anna,thalweg\nother:x:51:thalweg2,anna\nodd:x:y:thalweg\n";
        let found = find_user(users, groups, "thalweg").expect("it is there");
        assert_eq!((found.uid, found.gid, found.groups), (990, 991, vec![50]));
        assert_eq!(find_group(groups, "netops"), Some(50));
        for name in ["bad", "short", "nobody", ""] {
            assert_eq!(find_user(users, groups, name), None, "{name}");
        }
        assert_eq!((find_group(groups, "odd"), find_group(groups, "thalweg2")), (None, None));
    }
}
