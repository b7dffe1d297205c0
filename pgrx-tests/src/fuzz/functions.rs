//! The functions, procedures and operators that statements use. What they return is read by
//! `observe.rs`.
use std::fmt::Write as _;

use super::table::Table;

/// The function whose definition changes, as it is at the beginning of each schedule.
pub const FIRST_DEFINITION: &str = "CREATE OR REPLACE FUNCTION defined() RETURNS text \
    LANGUAGE sql STABLE AS $$SELECT '!0'::text$$;";

/// Independent of the tables.
pub const COMMON: &str = r#"
CREATE FUNCTION calls_defined() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN defined(); END $$;
CREATE FUNCTION is_fine(v bigint) RETURNS boolean LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN v >= 0; END $$;
CREATE FUNCTION shown(w text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN left(w, 3); END $$;
CREATE FUNCTION gate(g int) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
    PERFORM pg_advisory_lock_shared(g); PERFORM pg_advisory_unlock_shared(g); END $$;
CREATE FUNCTION noted(step int, o text, v bigint, g int) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO seen VALUES (step, o); IF v <> 0 AND g > 0 THEN PERFORM gate(g); END IF; RETURN v; END $$;
CREATE FUNCTION stable_note(v bigint, g int) RETURNS bigint LANGUAGE plpgsql STABLE AS $$ BEGIN
    IF v <> 0 AND g > 0 THEN PERFORM gate(g); END IF; RETURN v; END $$;
CREATE FUNCTION complain(o text, v bigint, code text) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN
    IF v <> 0 THEN RAISE EXCEPTION 'obs %', o USING ERRCODE = code; END IF; RETURN v; END $$;
CREATE FUNCTION tr_count() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.cnt := OLD.cnt + 1; RETURN NEW; END $$;
CREATE FUNCTION tr_chain() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO chain VALUES (TG_ARGV[0], NEW.n, OLD.val, NEW.val); RETURN NULL; END $$;
CREATE FUNCTION tr_statement() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO seen SELECT NULL, TG_ARGV[0] || ':' || n || '=' || val FROM news; RETURN NULL; END $$;
CREATE OPERATOR @#@ (FUNCTION = currtid2, LEFTARG = text, RIGHTARG = tid);
CREATE PROCEDURE churn(rel text, n int, times int) LANGUAGE plpgsql AS $$ BEGIN
    FOR i IN 1..times LOOP EXECUTE format('UPDATE %I SET ix = ix + 1 WHERE n = %s', rel, n); END LOOP; END $$;
CREATE PROCEDURE noise(times int) LANGUAGE plpgsql AS $$ BEGIN
    FOR i IN 1..times LOOP INSERT INTO noise (m) VALUES ('x'); COMMIT; END LOOP; END $$;
CREATE PROCEDURE burst(rel text, n int, times int) LANGUAGE plpgsql AS $$ BEGIN
    FOR i IN 1..times LOOP EXECUTE format('UPDATE %I SET ix = ix + 1 WHERE n = %s', rel, n); COMMIT; END LOOP; END $$;
"#;

/// A scalar that lists all rows of the table as one snapshot shows them.
pub fn listing(table: char) -> String {
    format!(
        "(SELECT '[*{table},' || coalesce(string_agg(format('{table}:%s=%s', n, val), ','), '') || ']' FROM {table})"
    )
}

/// The text of one row: `mark` says what became of it.
pub fn item(mark: &str, table: char, of: &str) -> String {
    format!("format('{mark}{table}:%s=%s', {of}.n, {of}.val)")
}

pub fn of(table: &Table, sql: &mut String) {
    let t = table.name;
    let list = listing(t);
    let (parameters, is) = table.parameters();
    let wrote = item("^", t, t.encode_utf8(&mut [0; 4]));
    let locked = item("?", t, t.encode_utf8(&mut [0; 4]));
    let update = format!("UPDATE {t} SET val = val + p_bit WHERE {is} RETURNING {wrote}");
    let _ = write!(
        sql,
        r#"
CREATE FUNCTION list_{t}() RETURNS text LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN {list}; END $$;
CREATE FUNCTION sql_list_{t}() RETURNS text LANGUAGE sql STABLE AS $$ SELECT {list} $$;
CREATE FUNCTION volatile_list_{t}() RETURNS text LANGUAGE plpgsql VOLATILE AS $$ BEGIN RETURN {list}; END $$;
CREATE FUNCTION immutable_list_{t}() RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN {list}; END $$;
CREATE FUNCTION guarded_list_{t}() RETURNS text LANGUAGE plpgsql STABLE AS $$ DECLARE x text; BEGIN
    BEGIN SELECT {list} INTO STRICT x; EXCEPTION WHEN no_data_found THEN x := ''; END; RETURN x; END $$;
CREATE FUNCTION whole_{t}() RETURNS boolean LANGUAGE plpgsql STABLE AS $$ BEGIN
    RETURN (SELECT count(*) = count(DISTINCT n) FROM {t}); END $$;
CREATE FUNCTION bump_{t}({parameters}, p_bit bigint) RETURNS text LANGUAGE sql VOLATILE AS $$ {update} $$;
CREATE FUNCTION pay_{t}({parameters}, p_bit bigint) RETURNS text LANGUAGE plpgsql AS $$ DECLARE o text; x text; BEGIN
    {update} INTO o; x := guarded_list_{t}(); RETURN coalesce(o, '') || ',' || x; END $$;
CREATE FUNCTION pay_and_query_{t}({parameters}, p_bit bigint) RETURNS text LANGUAGE plpgsql AS $$ DECLARE o text; x text; BEGIN
    {update} INTO o; SELECT {list} INTO x; RETURN coalesce(o, '') || ',' || x; END $$;
CREATE FUNCTION try_{t}({parameters}, p_bit bigint, fails boolean) RETURNS text LANGUAGE plpgsql AS $$ DECLARE o text; BEGIN
    BEGIN {update} INTO o; IF fails THEN o := ''; PERFORM 1 / 0; END IF;
    EXCEPTION WHEN division_by_zero THEN o := ''; END;
    RETURN coalesce(o, ''); END $$;
CREATE FUNCTION loop_{t}({parameters}, p_bit bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE o text := ''; x text; cur CURSOR FOR SELECT * FROM {t} WHERE {is} FOR UPDATE; BEGIN
    FOR r IN cur LOOP UPDATE {t} SET val = val + p_bit WHERE CURRENT OF cur RETURNING {wrote} INTO x; o := o || x || ','; END LOOP;
    RETURN o; END $$;
CREATE FUNCTION lock_and_bump_{t}({parameters}, p_bit bigint) RETURNS text LANGUAGE plpgsql AS $$ DECLARE o text; x text; BEGIN
    SELECT {locked} INTO o FROM {t} WHERE {is} FOR UPDATE; {update} INTO x;
    RETURN coalesce(o, '') || ',' || coalesce(x, ''); END $$;
CREATE FUNCTION take_{t}({parameters}, p_bit bigint, tag int) RETURNS text LANGUAGE plpgsql AS $$ DECLARE o text; BEGIN
    {update} INTO STRICT o; INSERT INTO remote VALUES (tag); RETURN o; END $$;
CREATE PROCEDURE twice_{t}({parameters}, p_bit bigint, qk {kind}, {second} p_bit2 bigint, keeps boolean) LANGUAGE plpgsql AS $$ BEGIN
    UPDATE {t} SET val = val + p_bit WHERE {is};
    IF keeps THEN COMMIT; ELSE ROLLBACK; END IF;
    UPDATE {t} SET val = val + p_bit2 WHERE {is_second}; END $$;
CREATE PROCEDURE taking_{t}({parameters}, p_bit bigint, tag int) LANGUAGE plpgsql AS $$ BEGIN
    UPDATE {t} SET val = val + p_bit WHERE {is}; INSERT INTO remote VALUES (tag); COMMIT; END $$;
CREATE VIEW look_{t} AS SELECT count(currtid2('{t}'::text, format('(0,%s)', i)::tid)) FROM generate_series(1, 12) i;
"#,
        kind = table.key.type_name(),
        second = if is.contains("k2") { "qk2 text," } else { "" },
        is_second = is.replace("pk", "qk"),
    );
}
