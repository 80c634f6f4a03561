package wire

// AnswerCodec is the codec with which servers write answers.
var AnswerCodec answerCodec
