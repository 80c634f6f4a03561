package handler

// SaidNotYet is for tests: what a handler's answer means that ends with
// ExitTryAgain.
var SaidNotYet = notYet
