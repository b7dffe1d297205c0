# The server as libpq's environment names it, and TPROC-C with stored procedures in database tpcc.
# The superuser is PGUSER; connections are trusted (passwords are HammerDB's own).

# The value of an environment variable, or a default.
proc option { name default } {
    if { [info exists ::env($name)] && $::env($name) ne "" } { return $::env($name) }
    return $default
}

dbset db pg
dbset bm TPC-C
diset connection pg_host [option PGHOST localhost]
diset connection pg_port [option PGPORT 5432]
diset tpcc pg_superuser [option PGUSER postgres]
diset tpcc pg_defaultdbase postgres
diset tpcc pg_user tpcc
diset tpcc pg_pass tpcc
diset tpcc pg_dbase tpcc
diset tpcc pg_storedprocs true
