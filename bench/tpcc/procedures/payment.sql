CALL payment(:w, :d, :c_w, :c_d, :c, :name, :cents / 100.0);
