CREATE TABLE cdc_store (version INTEGER NOT NULL PRIMARY KEY);
INSERT INTO cdc_store VALUES (3);
CREATE TABLE cdc_changefeeds (
    name VARCHAR(40) NOT NULL, feed_id VARCHAR(12) NOT NULL, epoch BIGINT NOT NULL, definition TEXT NOT NULL,
    created_at VARCHAR(32) NOT NULL, token TEXT, frontier TEXT, latest VARCHAR(40), counters TEXT,
    saved_at VARCHAR(32), plan TEXT, paused TEXT, recorded TEXT, unrecorded TEXT, emitted TEXT,
    PRIMARY KEY (name), UNIQUE (feed_id)
);
INSERT INTO cdc_changefeeds VALUES (
    'orders', 'e98269503d94', 2,
    '{"format":"json","place":{},"sink":"file:///data/out","source":"postgresql://user:***@host:5432/shop","tables":["public.orders","public.users"]}',
    '2026-06-01T10:00:00.236+00:00', '{"lsn":1234,"slot":"cdc_orders"}',
    '[["shop.public.orders","",null,"60.0000000000"],["shop.public.users","",null,"50.0000000003"]]',
    '60.0000000000', '{"rows":10.0}', '2026-06-01T10:05:00.280+00:00', '{"step":7}',
    '{"reason":"a row was refused","since":"2026-06-01T10:05:00.296+00:00"}',
    '10.0000000000', '10.0000000000 20.0000000000', '20.0000000000'
);
INSERT INTO cdc_changefeeds VALUES (
    'users', 'f82b43eaa435', 0,
    '{"format":"json","place":{},"sink":"file:///data/out","source":"postgresql://user:***@host:5432/shop","tables":["public.users"]}',
    '2026-06-01T10:06:00.300+00:00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '0.0000000000', NULL, NULL
);
CREATE TABLE cdc_delivered (
    id {number}, name VARCHAR(40) NOT NULL, entry TEXT NOT NULL, mark VARCHAR(40), PRIMARY KEY (id)
);
CREATE INDEX ix_cdc_delivered_name ON cdc_delivered (name);
INSERT INTO cdc_delivered (name, entry, mark) VALUES ('orders', '{"path":"b"}', '20.0000000000');
INSERT INTO cdc_delivered (name, entry, mark) VALUES ('orders', '{"path":"c"}', NULL);
CREATE TABLE cdc_dead_letters (
    id {number}, name VARCHAR(40) NOT NULL, table_name TEXT NOT NULL, key TEXT NOT NULL, updated VARCHAR(40) NOT NULL,
    stage VARCHAR(16) NOT NULL, error TEXT NOT NULL, put_aside_at VARCHAR(32) NOT NULL, replayed_at VARCHAR(32),
    PRIMARY KEY (id)
);
CREATE INDEX ix_cdc_dead_letters_waiting ON cdc_dead_letters (name, replayed_at);
INSERT INTO cdc_dead_letters (name, table_name, key, updated, stage, error, put_aside_at, replayed_at) VALUES (
    'orders', 'public.orders', '[1]', '5.0000000000', 'encode', 'a bad row', '2026-06-01T10:04:00.280+00:00',
    '2026-06-01T10:04:30.284+00:00'
);
INSERT INTO cdc_dead_letters (name, table_name, key, updated, stage, error, put_aside_at, replayed_at) VALUES (
    'orders', 'public.orders', '[2]', '6.0000000000', 'sink', 'refused', '2026-06-01T10:04:00.280+00:00', NULL
);
