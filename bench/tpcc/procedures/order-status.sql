CALL order_status(:w, :d, :c, :name, NULL);
