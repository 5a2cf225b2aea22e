exports.double = (number) => 2 * number;
exports.add = (a, b) => a + b;
