CALL new_order(:w, :d, :c, :lines, true, :warehouses, NULL);
