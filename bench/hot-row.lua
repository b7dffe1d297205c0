-- sysbench against MariaDB: the same statement as hot-row.sql.
sysbench.cmdline.options = {
   spread = {"0: all threads update row 1, 1: each thread has its own row", 0}
}

function thread_init()
   connection = sysbench.sql.driver():connect()
   statement = connection:prepare("UPDATE hot SET val = val + 1 WHERE id = ?")
   row = statement:bind_create(sysbench.sql.type.INT)
   statement:bind_param(row)
   row:set(1 + sysbench.opt.spread * 100 * sysbench.tid)
end

function event()
   statement:execute()
end

function thread_done()
   statement:close()
   connection:disconnect()
end
