# hammerdbcli tcl auto build.tcl: makes and fills database tpcc.
# TPCC_WAREHOUSES [1] of them, loaded by TPCC_LOADERS [1] virtual users.
source [file join [file dirname [info script]] connect.tcl]
diset tpcc pg_count_ware [option TPCC_WAREHOUSES 1]
diset tpcc pg_num_vu [option TPCC_LOADERS 1]
buildschema
