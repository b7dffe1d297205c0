\set k1 1 + :client_id * 10
\set k2 :k1 + 1
\set k3 :k1 + 2
\set k4 :k1 + 3
\set k5 :k1 + 4
\set k6 :k1 + 5
\set k7 :k1 + 6
\set k8 :k1 + 7
\set k9 :k1 + 8
\set k10 :k1 + 9
