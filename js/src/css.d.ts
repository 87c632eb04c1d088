// In the standalone bundle a style sheet is its text; in JupyterLab it is imported for its effect only.
declare module "*.css" {
  const text: string;
  export default text;
}
