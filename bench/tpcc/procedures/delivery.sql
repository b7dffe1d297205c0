CALL delivery(:w, :carrier, NULL);
