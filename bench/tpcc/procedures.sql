-- The five transactions as procedures. The lines of an order are drawn in the procedure, not by the
-- client.
CREATE PROCEDURE new_order(home int, dist int, cust int, lines int, unused boolean,
                           warehouses int, INOUT total numeric)
LANGUAGE plpgsql AS $$
DECLARE
    items         int[];
    supplies      int[];
    quantity      int;
    local         int := 1;
    order_id      int;
    price         numeric;
    dist_info     text;
    discount      numeric;
    warehouse_tax numeric;
    district_tax  numeric;
BEGIN
    FOR n IN 1 .. lines LOOP
        items[n] := 1 + ((floor(random() * 8192)::int | (1 + floor(random() * 100000)::int))
                         + 7911) % 100000;
        supplies[n] := home;
        IF warehouses > 1 AND random() < 0.01 THEN
            supplies[n] := 1 + (home + floor(random() * (warehouses - 1))::int) % warehouses;
            local := 0;
        END IF;
    END LOOP;
    IF unused THEN
        items[lines] := 0;
    END IF;
    SELECT w_tax INTO warehouse_tax FROM warehouse WHERE w_id = home;
    SELECT c_discount INTO discount FROM customer
    WHERE c_w_id = home AND c_d_id = dist AND c_id = cust;
    UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = home AND d_id = dist
    RETURNING d_next_o_id - 1, d_tax INTO order_id, district_tax;
    INSERT INTO orders (o_w_id, o_d_id, o_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local)
    VALUES (home, dist, order_id, cust, now(), lines, local);
    INSERT INTO new_order (no_w_id, no_d_id, no_o_id) VALUES (home, dist, order_id);
    total := 0;
    FOR n IN 1 .. lines LOOP
        SELECT i_price INTO price FROM item WHERE i_id = items[n];
        IF NOT FOUND THEN
            ROLLBACK;
            total := NULL;
            RETURN;
        END IF;
        quantity := 1 + floor(random() * 10)::int;
        UPDATE stock
        SET s_quantity = s_quantity - quantity
                         + CASE WHEN s_quantity < quantity + 10 THEN 91 ELSE 0 END,
            s_ytd = s_ytd + quantity, s_order_cnt = s_order_cnt + 1,
            s_remote_cnt = s_remote_cnt + CASE WHEN s_w_id = home THEN 0 ELSE 1 END
        WHERE s_w_id = supplies[n] AND s_i_id = items[n]
        RETURNING (ARRAY[s_dist_01, s_dist_02, s_dist_03, s_dist_04, s_dist_05,
                         s_dist_06, s_dist_07, s_dist_08, s_dist_09, s_dist_10])[dist]
        INTO dist_info;
        INSERT INTO order_line (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id,
                                ol_quantity, ol_amount, ol_dist_info)
        VALUES (home, dist, order_id, n, items[n], supplies[n],
                quantity, quantity * price, dist_info);
        total := total + quantity * price;
    END LOOP;
    total := total * (1 - discount) * (1 + warehouse_tax + district_tax);
END $$;

-- By last name, it is the middle one of the customers who have it, by first names. number is that
-- of the last name, or -1.
CREATE PROCEDURE payment(home int, dist int, cust_home int, cust_dist int, INOUT cust int,
                         number int, amount numeric)
LANGUAGE plpgsql AS $$
DECLARE
    part           text[] := '{BAR,OUGHT,ABLE,PRI,PRES,ESE,ANTI,CALLY,ATION,EING}';
    warehouse_name text;
    district_name  text;
BEGIN
    UPDATE warehouse SET w_ytd = w_ytd + amount WHERE w_id = home
    RETURNING w_name INTO warehouse_name;
    UPDATE district SET d_ytd = d_ytd + amount WHERE d_w_id = home AND d_id = dist
    RETURNING d_name INTO district_name;
    IF number >= 0 THEN
        SELECT (array_agg(c_id ORDER BY c_first))[((count(*) + 1) / 2)::int] INTO cust
        FROM customer
        WHERE c_w_id = cust_home AND c_d_id = cust_dist
          AND c_last = part[number / 100 + 1] || part[number / 10 % 10 + 1]
                       || part[number % 10 + 1];
    END IF;
    UPDATE customer
    SET c_balance = c_balance - amount, c_ytd_payment = c_ytd_payment + amount,
        c_payment_cnt = c_payment_cnt + 1,
        c_data = CASE c_credit
                 WHEN 'BC' THEN substr(concat_ws(' ', c_id, c_d_id, c_w_id, dist, home, amount,
                                                 c_data), 1, 500)
                 ELSE c_data END
    WHERE c_w_id = cust_home AND c_d_id = cust_dist AND c_id = cust;
    INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data)
    VALUES (cust, cust_dist, cust_home, dist, home, now(), amount,
            warehouse_name || '    ' || district_name);
END $$;

CREATE PROCEDURE order_status(home int, dist int, INOUT cust int, number int,
                              INOUT amounts numeric[])
LANGUAGE plpgsql AS $$
DECLARE
    part     text[] := '{BAR,OUGHT,ABLE,PRI,PRES,ESE,ANTI,CALLY,ATION,EING}';
    balance  numeric;
    order_id int;
BEGIN
    IF number >= 0 THEN
        SELECT (array_agg(c_id ORDER BY c_first))[((count(*) + 1) / 2)::int] INTO cust
        FROM customer
        WHERE c_w_id = home AND c_d_id = dist
          AND c_last = part[number / 100 + 1] || part[number / 10 % 10 + 1]
                       || part[number % 10 + 1];
    END IF;
    SELECT c_balance INTO balance FROM customer
    WHERE c_w_id = home AND c_d_id = dist AND c_id = cust;
    SELECT o_id INTO order_id FROM orders
    WHERE o_w_id = home AND o_d_id = dist AND o_c_id = cust
    ORDER BY o_id DESC LIMIT 1;
    SELECT array_agg(ol_amount) INTO amounts FROM order_line
    WHERE ol_w_id = home AND ol_d_id = dist AND ol_o_id = order_id;
END $$;

-- A Delivery that has waited for the oldest new order of a district finds it gone, and takes the
-- next one: nothing is delivered twice.
CREATE PROCEDURE delivery(home int, carrier int, INOUT delivered int)
LANGUAGE plpgsql AS $$
DECLARE
    order_id int;
    cust     int;
    amount   numeric;
BEGIN
    delivered := 0;
    FOR dist IN 1 .. 10 LOOP
        SELECT no_o_id INTO order_id FROM new_order WHERE no_w_id = home AND no_d_id = dist
        ORDER BY no_o_id LIMIT 1 FOR UPDATE;
        IF NOT FOUND THEN
            INSERT INTO skipped_delivery VALUES (home, dist);
            CONTINUE;
        END IF;
        DELETE FROM new_order WHERE no_w_id = home AND no_d_id = dist AND no_o_id = order_id;
        UPDATE orders SET o_carrier_id = carrier
        WHERE o_w_id = home AND o_d_id = dist AND o_id = order_id
        RETURNING o_c_id INTO cust;
        UPDATE order_line SET ol_delivery_d = now()
        WHERE ol_w_id = home AND ol_d_id = dist AND ol_o_id = order_id;
        SELECT sum(ol_amount) INTO amount FROM order_line
        WHERE ol_w_id = home AND ol_d_id = dist AND ol_o_id = order_id;
        UPDATE customer SET c_balance = c_balance + amount, c_delivery_cnt = c_delivery_cnt + 1
        WHERE c_w_id = home AND c_d_id = dist AND c_id = cust;
        delivered := delivered + 1;
    END LOOP;
END $$;

CREATE PROCEDURE stock_level(home int, dist int, threshold int, INOUT low bigint)
LANGUAGE plpgsql AS $$
DECLARE
    next_order int;
BEGIN
    SELECT d_next_o_id INTO next_order FROM district WHERE d_w_id = home AND d_id = dist;
    SELECT count(DISTINCT s_i_id) INTO low FROM order_line JOIN stock ON s_i_id = ol_i_id
    WHERE ol_w_id = home AND ol_d_id = dist
      AND ol_o_id >= next_order - 20 AND ol_o_id < next_order
      AND s_w_id = home AND s_quantity < threshold;
END $$;
