CALL new_order(:w, :d, :c, :lines, false, :warehouses, NULL);
