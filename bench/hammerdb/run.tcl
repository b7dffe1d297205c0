# hammerdbcli tcl auto run.tcl: TPCC_USERS [16] virtual users for TPCC_RAMP_UP [1] minutes and then
# TPCC_MINUTES [2], which are the ones that count. The result is HammerDB's line "TEST RESULT".
#
# pg_allwarehouse gives the warehouses to the users in turn: with as many warehouses as users each
# has one of his own. Without it users draw theirs, and some draw the same.
source [file join [file dirname [info script]] connect.tcl]
diset tpcc pg_driver timed
diset tpcc pg_total_iterations 1000000000
diset tpcc pg_rampup [option TPCC_RAMP_UP 1]
diset tpcc pg_duration [option TPCC_MINUTES 2]
diset tpcc pg_allwarehouse true
loadscript
vuset vu [option TPCC_USERS 16]
# Milliseconds from one user's login to the next one's. It is 500 otherwise: the ramp-up would have
# to be long.
vuset repeat 20
vucreate
vurun
vudestroy
