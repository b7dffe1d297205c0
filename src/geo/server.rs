//! What the catalogs say of a node: its server, the user mapping, and whether a user may connect
//! so.

use super::exchange::in_c;
use super::failure::{Failure, Outcome};
use crate::pg::libpq::is_connection_option;
use crate::pg::nodes::nodes;
use pgrx::pg_sys::{self, Oid};
use std::ffi::{CStr, CString, c_char};
use std::rc::Rc;

/// A server as a user reaches it.
pub struct Server {
    pub server: Oid,
    pub mapping: Oid,
    pub name: String,
    /// Connection options: keyword and value.
    pub parameters: Vec<(CString, CString)>,
    /// Only a connection for which the node has asked for the mapping's password is allowed.
    pub wants_password: bool,
    /// Whether the connection outlives the transaction.
    pub is_kept: bool,
    /// By which the catalogs tell that the server or the mapping has changed (syscache.c).
    pub hashes: [u32; 2],
}

/// The options of a list of `DefElem`.
///
/// # Safety
/// Such a list, of catalog options.
pub unsafe fn options(list: *const pg_sys::List) -> Vec<(String, String)> {
    // SAFETY: by the contract; defGetString of an option gives its text.
    unsafe {
        nodes(list)
            .map(|node| {
                let option = node.cast::<pg_sys::DefElem>();
                let text = |text| CStr::from_ptr(text).to_string_lossy().into_owned();
                (text((*option).defname), text(pg_sys::defGetString(option)))
            })
            .collect()
    }
}

/// Whether an option says yes, as `defGetBoolean` does for what the validator has let through.
pub fn is_yes(value: &str) -> bool {
    matches!(
        value.to_ascii_lowercase().as_str(),
        "true" | "on" | "1" | "yes" | ""
    )
}

/// The last of the options with that name.
pub fn option_of<'a>(options: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = options.iter().rev().find(|(keyword, _)| keyword == name);
    found.map(|(_, value)| value.as_str())
}

/// Servers with our handler that have foreign tables.
pub fn in_use() -> Vec<Oid> {
    let mut found = Vec::new();
    // SAFETY: a scan of a catalog, whose rows have a fixed width and no nulls.
    unsafe {
        let mode = pg_sys::AccessShareLock as i32;
        let catalog = pg_sys::table_open(pg_sys::ForeignTableRelationId, mode);
        let (any, none) = (Oid::INVALID, std::ptr::null_mut());
        let scan = pg_sys::systable_beginscan(catalog, any, false, none, 0, std::ptr::null_mut());
        loop {
            let tuple = pg_sys::systable_getnext(scan);
            if tuple.is_null() {
                break;
            }
            let data = (*tuple).t_data;
            let row = data.byte_add(usize::from((*data).t_hoff));
            let server = (*row.cast::<pg_sys::FormData_pg_foreign_table>()).ftserver;
            if !found.contains(&server) {
                found.push(server);
            }
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(catalog, mode);
    }
    found.retain(|&server| is_ours(server));
    found
}

/// Whether the wrapper of the server has our handler.
fn is_ours(server: Oid) -> bool {
    let is = |name: *const c_char, what: &CStr| {
        // SAFETY: null or a name.
        !name.is_null() && unsafe { CStr::from_ptr(name) } == what
    };
    // SAFETY: catalog look-ups.
    unsafe {
        let wrapper = (*pg_sys::GetForeignServer(server)).fdwid;
        let handler = (*pg_sys::GetForeignDataWrapper(wrapper)).fdwhandler;
        handler != Oid::INVALID && is(pg_sys::get_func_name(handler), c"fdw_handler") && {
            let schema = pg_sys::get_func_namespace(handler);
            is(pg_sys::get_namespace_name(schema), c"txn")
        }
    }
}

/// Whether the user has a mapping for the server, or PUBLIC has.
pub fn has_mapping(server: Oid, user: Oid) -> bool {
    let none = pg_sys::Datum::null();
    [user, Oid::INVALID].into_iter().any(|user| {
        let cache = pg_sys::SysCacheIdentifier::USERMAPPINGUSERSERVER as i32;
        // SAFETY: a cache with two keys.
        unsafe { pg_sys::SearchSysCacheExists(cache, user.into(), server.into(), none, none) }
    })
}

/// The server as this user reaches it. Raises an ERROR if there is no such server or mapping.
pub fn find(server: Oid, user: Oid) -> Rc<Server> {
    // SAFETY: catalog look-ups; they raise, or give what lives in this memory context.
    unsafe {
        let mapping = pg_sys::GetUserMapping(user, server);
        describe(&*pg_sys::GetForeignServer(server), &*mapping, user)
    }
}

/// As this user is responsible for it.
///
/// # Safety
/// What the catalogs have given.
pub unsafe fn describe(
    server: &pg_sys::ForeignServer,
    mapping: &pg_sys::UserMapping,
    user: Oid,
) -> Rc<Server> {
    // SAFETY: the caller's server and mapping come from the catalogs: their texts are C strings.
    unsafe {
        let of_server = options(server.options);
        let of_mapping = options(mapping.options);
        let needs_password = !pg_sys::superuser_arg(user)
            && option_of(&of_mapping, "password_required").is_none_or(is_yes);
        let mut parameters: Vec<(CString, CString)> = of_server
            .iter()
            .chain(&of_mapping)
            .filter(|(keyword, _)| is_connection_option(keyword))
            .map(|(keyword, value)| (in_c(keyword), in_c(value)))
            .collect();
        let encoding = CStr::from_ptr(pg_sys::GetDatabaseEncodingName());
        parameters.push((c"fallback_application_name".into(), c"txn".into()));
        parameters.push((c"client_encoding".into(), encoding.into()));
        Rc::new(Server {
            server: server.serverid,
            mapping: mapping.umid,
            name: CStr::from_ptr(server.servername)
                .to_string_lossy()
                .into_owned(),
            parameters,
            wants_password: needs_password,
            is_kept: option_of(&of_server, "keep_connections").is_none_or(is_yes),
            hashes: [
                hash(
                    pg_sys::SysCacheIdentifier::FOREIGNSERVEROID,
                    server.serverid,
                ),
                hash(pg_sys::SysCacheIdentifier::USERMAPPINGOID, mapping.umid),
            ],
        })
    }
}

fn hash(cache: pg_sys::SysCacheIdentifier::Type, key: Oid) -> u32 {
    let none = pg_sys::Datum::null();
    // SAFETY: a cache with one key.
    unsafe { pg_sys::GetSysCacheHashValue(cache as i32, key.into(), none, none, none) }
}

impl Server {
    fn value(&self, keyword: &str) -> Option<&CString> {
        let is_it = |name: &CString| name.as_bytes() == keyword.as_bytes();
        self.parameters
            .iter()
            .rev()
            .find(|(name, _)| is_it(name))
            .map(|(_, value)| value)
    }

    fn has_password(&self) -> bool {
        self.value("password")
            .is_some_and(|value| !value.is_empty())
    }

    /// Before connecting: a user who is no superuser gives a password, so that none of the
    /// server's own files is used (connection.c: check_conn_params).
    pub fn check_before(&self) -> Outcome<()> {
        if !self.wants_password || self.has_password() {
            return Ok(());
        }
        Err(Failure::new(*b"2F003", "password is required")
            .detail("Non-superusers must provide a password in the user mapping."))
    }

    /// Once connected: the node has asked for it (connection.c: pgfdw_security_check).
    pub fn check_after(&self, has_used_password: bool) -> Outcome<()> {
        if !self.wants_password || has_used_password && self.has_password() {
            return Ok(());
        }
        Err(Failure::new(*b"2F003", "password is required")
            .detail("Non-superuser cannot connect if the server does not request a password.")
            .hint(
                "Target server's authentication method must be changed or \
                 password_required=false set in the user mapping attributes.",
            ))
    }

    /// How long connecting may take, in milliseconds: the option `connect_timeout`, in seconds.
    pub fn connect_timeout_ms(&self) -> Option<u64> {
        let seconds: u64 = self.value("connect_timeout")?.to_str().ok()?.parse().ok()?;
        (seconds > 0).then_some(seconds * 1000)
    }
}
