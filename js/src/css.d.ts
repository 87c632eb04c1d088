// A style sheet is imported for its effect only.
declare module "*.css";
