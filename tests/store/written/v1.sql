CREATE TABLE cdc_store (version INTEGER NOT NULL PRIMARY KEY);
INSERT INTO cdc_store VALUES (1);
CREATE TABLE cdc_changefeeds (
    name VARCHAR(40) NOT NULL, feed_id VARCHAR(12) NOT NULL, epoch BIGINT NOT NULL, definition TEXT NOT NULL,
    created_at VARCHAR(32) NOT NULL, token TEXT, frontier TEXT, latest VARCHAR(40), counters TEXT,
    saved_at VARCHAR(32), PRIMARY KEY (name), UNIQUE (feed_id)
);
INSERT INTO cdc_changefeeds VALUES (
    'orders', 'e98269503d94', 2,
    '{"format":"json","sink":"file:///data/out","source":"postgresql://user:***@host:5432/shop","tables":["public.orders","public.users"]}',
    '2026-06-01T10:00:00.236+00:00', '{"lsn":1234,"slot":"cdc_orders"}',
    '[["shop.public.orders","",null,"60.0000000000"],["shop.public.users","",null,"50.0000000003"]]',
    '60.0000000000', '{"rows":10.0}', '2026-06-01T10:05:00.280+00:00'
);
