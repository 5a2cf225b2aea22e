const test = require('node:test');

test('add', () => {});
test('more', () => {});
