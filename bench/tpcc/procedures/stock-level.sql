CALL stock_level(:w, :d, :threshold, NULL);
