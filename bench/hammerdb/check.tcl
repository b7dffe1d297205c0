# hammerdbcli tcl auto check.tcl: says of each condition of check.sql how often it is violated.
source [file join [file dirname [info script]] connect.tcl]
package require Pgtcl
set file [open [file join [file dirname [info script]] check.sql]]
set query [read $file]
close $file
set session [pg_connect -conninfo "dbname=tpcc user=tpcc"]
set result [pg_exec $session $query]
if { [pg_result $result -status] ne "PGRES_TUPLES_OK" } {
    error "the check failed: [pg_result $result -error]"
}
foreach { condition violations } [pg_result $result -list] {
    puts "CONDITION $condition: $violations violations"
}
